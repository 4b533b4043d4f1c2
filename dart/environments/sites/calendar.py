"""A calendar: months, days, events that are moved or cancelled, invitations, people and settings."""

from collections.abc import Iterator

from dart.environments.sites.machine import (
    Add,
    Assign,
    Element,
    Field,
    Kind,
    RecordGuard,
    SiteRecord,
    TypedText,
)
from dart.environments.sites.site import (
    Actions,
    Facts,
    Item,
    Listing,
    RecordChange,
    Shown,
    SiteDefinition,
    SiteScreen,
    Tabs,
    button,
    check_box,
    link,
    notice,
)
from dart.environments.sites.words import TOPICS, Words

MONTHS = (("May", 31), ("June", 30), ("July", 31))
DAYS = tuple(f"{day} {month}" for month, days in MONTHS for day in range(1, days + 1))
WEEKDAYS = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
"""Weekdays, beginning with the weekday of the calendar's first day, 1 May."""

EVENTS, PEOPLE = 10, 6
ANSWERS = {"yes": "Accepted", "no": "Declined", "": "No answer yet"}
SETTINGS = {"weeks": "Week numbers", "alarms": "Alarms", "holidays": "Public holidays"}


def calendar(words: Words) -> SiteDefinition:
    """Return a calendar whose events and people are drawn from ``words``."""
    titles, people = words.some(TOPICS, EVENTS), words.people(PEOPLE)
    first_days = sorted(words.random.sample(range(5, len(DAYS) - 5), EVENTS))
    return SiteDefinition(
        name="calendar",
        brand=words.some(("Dayplan", "Agenda", "Almanac", "Weekwise", "Timetable"), 1)[0],
        tagline="All times are local",
        navigation=(
            ("Months", "home"),
            ("Events", "events"),
            ("Invitations", "invitations"),
            ("People", "people"),
            ("New event", "new"),
        ),
        menu=("Options", (("View", "settings"), ("Sharing", "sharing"), ("Cancelled", "cancelled"))),
        screens=tuple(_screens(words, titles, people)),
        records=_records(first_days),
        changes=tuple(_changes(titles, people, first_days)),
    )


def _records(first_days: list[int]) -> dict[str, SiteRecord]:
    records = {"new/title": SiteRecord(""), "new/day": SiteRecord("")}
    for number, day in enumerate(first_days):
        records[f"day/{number}"] = SiteRecord(day)
        records[f"cancelled/{number}"] = SiteRecord(0)
    records |= {f"answer/{number}": SiteRecord("") for number in range(PEOPLE)}
    records |= {f"share/{number}": SiteRecord(0) for number in range(PEOPLE)}
    return records | {f"setting/{name}": SiteRecord(0) for name in SETTINGS}


def _screens(words: Words, titles: list[str], people: list[str]) -> Iterator[SiteScreen]:
    yield from _months()
    yield from _days(titles)
    yield from _events(words, titles, people)
    yield from _people(words, people)
    yield from _options(titles, people)


def _months() -> Iterator[SiteScreen]:
    ids = ("home", "month-2", "month-3")
    views = Tabs(tuple(zip((month for month, _ in MONTHS), ids, strict=True)))
    first = 0
    for (month, days), id_ in zip(MONTHS, ids, strict=True):
        cells = tuple(
            Item(link(str(day - first + 1), f"day-{day}"), (WEEKDAYS[day % 7],))
            for day in range(first, first + days)
        )
        yield SiteScreen(id_, f"the month {month}", month, (views, Listing(cells, columns=7)))
        first += days


def _days(titles: list[str]) -> Iterator[SiteScreen]:
    for day, date in enumerate(DAYS):
        events = tuple(
            Item(
                link(title.capitalize(), f"event-{number}"),
                guards=(RecordGuard(f"day/{number}", "is", day), RecordGuard(f"cancelled/{number}", "is", 0)),
            )
            for number, title in enumerate(titles)
        )
        ways = [link("Earlier", f"day-{day - 1}")] if day else []
        ways += [link("Later", f"day-{day + 1}")] if day + 1 < len(DAYS) else []
        heading = f"{WEEKDAYS[day % 7]}, {date}"
        blocks = (Listing(events, "No events."), Actions(tuple(ways)))
        yield SiteScreen(f"day-{day}", f'the day "{date}"', heading, blocks)


def _events(words: Words, titles: list[str], people: list[str]) -> Iterator[SiteScreen]:
    dates = tuple(enumerate(DAYS))
    lines = tuple(
        Item(
            link(title.capitalize(), f"event-{number}"),
            (Shown(f"day/{number}", words=dates),),
            guards=(RecordGuard(f"cancelled/{number}", "is", 0),),
        )
        for number, title in enumerate(titles)
    )
    yield SiteScreen("events", "the list of events", "Events", (Listing(lines),))
    for number, title in enumerate(titles):
        day, cancelled = f"day/{number}", f"cancelled/{number}"
        facts = (
            ("Day", Shown(day, words=dates)),
            ("Time", f"{words.number(8, 18)}:{words.random.choice(('00', '15', '30', '45'))}"),
            ("With", words.random.choice(people)),
        )
        is_on = RecordGuard(cancelled, "is", 0)
        moves = (
            button("A day earlier", (Add(day, -1),), (is_on, RecordGuard(day, "above", 0))),
            Element(
                Kind.BUTTON,
                "A day later",
                effects=(Add(day, 1),),
                guards=(is_on, RecordGuard(day, "below", len(DAYS) - 1)),
            ),
            Element(
                Kind.BUTTON,
                "Cancel it",
                "events",
                (Assign(cancelled, 1), notice("The event was cancelled.")),
                (is_on,),
            ),
        )
        ways = Actions((link("All events", "events"),))
        yield SiteScreen(
            f"event-{number}",
            f'the event "{title}"',
            title.capitalize(),
            (Facts(facts), Actions(moves), ways),
        )


def _people(words: Words, people: list[str]) -> Iterator[SiteScreen]:
    lines = tuple(Item(link(person, f"person-{number}")) for number, person in enumerate(people))
    yield SiteScreen("people", "the list of people", "People", (Listing(lines),))
    invitations = tuple(
        Item(
            link(f"From {person}", f"invitation-{number}"),
            (Shown(f"answer/{number}", words=tuple(ANSWERS.items())),),
        )
        for number, person in enumerate(people)
    )
    yield SiteScreen("invitations", "the list of invitations", "Invitations", (Listing(invitations),))
    for number, person in enumerate(people):
        answer = f"answer/{number}"
        facts = (("City", words.city()), ("Free", words.random.choice(("mornings", "afternoons"))))
        ways = Actions((link("All people", "people"), link("Invitation", f"invitation-{number}")))
        yield SiteScreen(f"person-{number}", f'the person "{person}"', person, (Facts(facts), ways))
        buttons = tuple(
            button(label, (Assign(answer, value),), (RecordGuard(answer, "is not", value),))
            for label, value in (("Accept", "yes"), ("Decline", "no"))
        )
        what = (("When", words.date()), ("Answer", Shown(answer, words=tuple(ANSWERS.items()))))
        yield SiteScreen(
            f"invitation-{number}",
            f'the invitation from "{person}"',
            f"Invitation from {person}",
            (Facts(what), Actions(buttons), Actions((link("All invitations", "invitations"),))),
        )


def _options(titles: list[str], people: list[str]) -> Iterator[SiteScreen]:
    effects = (
        Assign("new/title", TypedText("title")),
        Assign("new/day", TypedText("day")),
        notice("The event was added."),
    )
    fields = (Field("title", "Title"), Field("day", "Day"))
    form = Element(Kind.FORM, "Add", "events", effects, fields=fields)
    yield SiteScreen("new", "the form for a new event", "New event", (Actions((form,)),))
    views = Tabs((("View", "settings"), ("Sharing", "sharing")))
    boxes = tuple(check_box(label, f"setting/{name}") for name, label in SETTINGS.items())
    yield SiteScreen("settings", "the options of the view", "View", (views, Actions(boxes)))
    shares = tuple(check_box(person, f"share/{number}") for number, person in enumerate(people))
    yield SiteScreen("sharing", "the sharing options", "Who sees your calendar", (views, Actions(shares)))
    gone = tuple(
        Item(
            title.capitalize(),
            actions=(button("Restore", (Assign(f"cancelled/{number}", 0),)),),
            guards=(RecordGuard(f"cancelled/{number}", "is", 1),),
        )
        for number, title in enumerate(titles)
    )
    yield SiteScreen("cancelled", "the cancelled events", "Cancelled", (Listing(gone, "None."),))


def _changes(titles: list[str], people: list[str], first_days: list[int]) -> Iterator[RecordChange]:
    for number, title in enumerate(titles):
        yield RecordChange(
            (f'Cancel the event "{title}".', f'Call off "{title}".'), ((f"cancelled/{number}", 1),)
        )
        for days, text in ((1, "one day later"), (2, "two days later"), (-1, "one day earlier")):
            sentences = (f'Move the event "{title}" to {text}.', f'Let "{title}" be {text}.')
            yield RecordChange(sentences, ((f"day/{number}", first_days[number] + days),))
    for number, person in enumerate(people):
        for answer, verb in (("yes", "Accept"), ("no", "Decline")):
            yield RecordChange((f'{verb} the invitation from "{person}".',), ((f"answer/{number}", answer),))
        yield RecordChange((f'Share the calendar with "{person}".',), ((f"share/{number}", 1),))
    for name, label in SETTINGS.items():
        yield RecordChange((f'Show "{label}" in the calendar.',), ((f"setting/{name}", 1),))
    for title in ("dentist", "concert"):
        for day in ("3 June", "12 July"):
            sentence = f'Add the event "{title}" on "{day}".'
            yield RecordChange((sentence,), (("new/title", title), ("new/day", day)))
