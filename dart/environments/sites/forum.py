"""A forum: boards, threads with replies and votes, members, bookmarks and moderation."""

from collections.abc import Iterator

from dart.environments.sites.machine import (
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
    Paragraph,
    RecordChange,
    Shown,
    SiteDefinition,
    SiteScreen,
    Tabs,
    button,
    check_box,
    link,
    notice,
    pages,
)
from dart.environments.sites.words import TOPICS, Words

BOARDS = ("General", "Questions", "Projects", "Events", "Market", "Off topic")
THREADS_PER_BOARD = 6
PER_PAGE = 4
MEMBERS = 8
SETTINGS = {"digest": "Weekly digest", "mentions": "Mail me mentions", "hidden": "Hide my profile"}


def forum(words: Words) -> SiteDefinition:
    """Return a forum whose members and threads are drawn from ``words``."""
    members = words.people(MEMBERS)
    titles = words.some(TOPICS, len(BOARDS) * THREADS_PER_BOARD)
    authors = words.shuffled(tuple(members), len(titles))
    return SiteDefinition(
        name="forum",
        brand=words.some(("Roundtable", "The Commons", "Village Board", "Open Floor", "Campfire"), 1)[0],
        tagline="Be kind, stay on topic",
        navigation=(
            ("Boards", "home"),
            ("Members", "members"),
            ("Bookmarks", "bookmarks"),
            ("Rules", "rules"),
        ),
        menu=("You", (("Preferences", "settings"), ("Your profile", "profile"), ("Deleted", "deleted"))),
        search=_search(),
        screens=tuple(_screens(words, members, titles, authors)),
        records=_records(len(titles)),
        changes=tuple(_changes(members, titles)),
    )


def _board_id(board: str) -> str:
    return "board-" + board.lower().replace(" ", "-")


def _search() -> Element:
    boards = tuple((board, f"{_board_id(board)}-1") for board in BOARDS)
    return Element(Kind.FORM, "Go", "not-found", fields=(Field("board", "Board"),), destinations=boards)


def _records(threads: int) -> dict[str, SiteRecord]:
    records = {"new/board": SiteRecord(""), "new/title": SiteRecord("")}
    for number in range(threads):
        records |= {f"{name}/{number}": SiteRecord(0) for name in ("vote", "mark", "deleted")}
        records[f"reply/{number}"] = SiteRecord("")
    records |= {f"follow/{number}": SiteRecord(0) for number in range(MEMBERS)}
    return records | {f"setting/{name}": SiteRecord(0) for name in SETTINGS}


def _screens(words: Words, members: list[str], titles: list[str], authors: list[str]) -> Iterator[SiteScreen]:
    lines = tuple(
        Item(link(f"{board}", f"{_board_id(board)}-1"), (f"{THREADS_PER_BOARD} threads",)) for board in BOARDS
    )
    yield SiteScreen("home", "the list of boards", "Boards", (Listing(lines),))
    for index, board in enumerate(BOARDS):
        numbers = range(index * THREADS_PER_BOARD, (index + 1) * THREADS_PER_BOARD)
        yield from _board(board, [_line(number, titles[number], authors[number]) for number in numbers])
        for number in numbers:
            yield from _thread(words, board, number, titles[number], authors[number])
    yield from _members(words, members)
    yield from _lists(titles)
    yield from _account(words)


def _line(number: int, title: str, author: str) -> Item:
    return Item(
        link(title.capitalize(), f"thread-{number}"),
        (f"by {author}",),
        guards=(RecordGuard(f"deleted/{number}", "is", 0),),
    )


def _board(board: str, lines: list[Item]) -> Iterator[SiteScreen]:
    id_ = _board_id(board)
    shelves = pages(lines, PER_PAGE)
    for page, shelf in enumerate(shelves, 1):
        turns = Tabs(tuple((f"Page {n}", f"{id_}-{n}") for n in range(1, len(shelves) + 1)))
        start = Actions((link("Start a thread", f"{id_}-new"),))
        yield SiteScreen(
            f"{id_}-{page}", f'page {page} of the board "{board}"', board, (turns, Listing(shelf), start)
        )
    effects = (Assign("new/board", board), Assign("new/title", TypedText("title")), notice("Thread started."))
    form = Element(Kind.FORM, "Start", f"{id_}-1", effects, fields=(Field("title", "Title"),))
    yield SiteScreen(
        f"{id_}-new",
        f'the form for a new thread in "{board}"',
        f"New thread in {board}",
        (Actions((form,)), Actions((link("Cancel", f"{id_}-1"),))),
    )


def _thread(words: Words, board: str, number: int, title: str, author: str) -> Iterator[SiteScreen]:
    reply, deleted, name = f"reply/{number}", f"deleted/{number}", f'the thread "{title}"'
    facts = (("Author", author), ("Posted", words.date()), ("Board", board))
    answer = Element(
        Kind.FORM, "Reply", effects=(Assign(reply, TypedText("text")),), fields=(Field("text", "Your reply"),)
    )
    boxes = (
        check_box("Upvote", f"vote/{number}"),
        check_box("Bookmark", f"mark/{number}"),
    )
    ways = (link(f"Back to {board}", f"{_board_id(board)}-1"), link("Delete", f"delete-{number}"))
    yield SiteScreen(
        f"thread-{number}",
        name,
        title.capitalize(),
        (
            Facts(facts),
            Paragraph(f"Has anyone thought about the {title}? I would like to hear more."),
            Paragraph(Shown(reply, "You replied: "), (RecordGuard(reply, "is not", ""),)),
            Actions(boxes),
            Actions((answer,)),
            Actions(ways),
        ),
    )
    delete = Element(
        Kind.BUTTON,
        "Yes, delete it",
        f"{_board_id(board)}-1",
        (Assign(deleted, 1), notice("The thread was deleted.")),
        (RecordGuard(deleted, "is", 0),),
    )
    yield SiteScreen(
        f"delete-{number}",
        f'the question whether to delete "{title}"',
        "Delete this thread?",
        (
            Paragraph(f"{title.capitalize()}, by {author}"),
            Actions((delete, link("Keep it", f"thread-{number}"))),
        ),
    )


def _members(words: Words, members: list[str]) -> Iterator[SiteScreen]:
    lines = tuple(Item(link(member, f"member-{number}")) for number, member in enumerate(members))
    yield SiteScreen("members", "the list of members", "Members", (Listing(lines),))
    for number, member in enumerate(members):
        facts = (("Joined", words.date()), ("Posts", str(words.number(1, 400))))
        follow = check_box("Follow", f"follow/{number}")
        yield SiteScreen(
            f"member-{number}",
            f'the member "{member}"',
            member,
            (Facts(facts), Actions((follow,)), Actions((link("All members", "members"),))),
        )


def _lists(titles: list[str]) -> Iterator[SiteScreen]:
    marked = tuple(
        Item(link(title.capitalize(), f"thread-{number}"), guards=(RecordGuard(f"mark/{number}", "is", 1),))
        for number, title in enumerate(titles)
    )
    yield SiteScreen("bookmarks", "the bookmarks", "Bookmarks", (Listing(marked, "No bookmarks yet."),))
    deleted = tuple(
        Item(
            title.capitalize(),
            actions=(button("Restore", (Assign(f"deleted/{number}", 0),)),),
            guards=(RecordGuard(f"deleted/{number}", "is", 1),),
        )
        for number, title in enumerate(titles)
    )
    yield SiteScreen("deleted", "the deleted threads", "Deleted threads", (Listing(deleted, "None."),))
    nothing = (Paragraph("There is no board of this name."), Actions((link("All boards", "home"),)))
    yield SiteScreen("not-found", "the page of a board that does not exist", "No such board", nothing)


def _account(words: Words) -> Iterator[SiteScreen]:
    views = Tabs((("Preferences", "settings"), ("Profile", "profile")))
    boxes = tuple(check_box(label, f"setting/{name}") for name, label in SETTINGS.items())
    yield SiteScreen("settings", "the preferences", "Preferences", (views, Actions(boxes)))
    facts = Facts((("Name", "You"), ("Joined", words.date()), ("Posts", str(words.number(1, 90)))))
    yield SiteScreen("profile", "your own profile", "Your profile", (views, facts))
    rules = tuple(Item(rule) for rule in ("Be kind.", "One topic a thread.", "No advertising."))
    yield SiteScreen("rules", "the rules", "Rules", (Listing(rules),))


def _changes(members: list[str], titles: list[str]) -> Iterator[RecordChange]:
    for number, title in enumerate(titles):
        yield RecordChange(
            (f'Upvote the thread "{title}".', f'Vote for "{title}".'), ((f"vote/{number}", 1),)
        )
        yield RecordChange(
            (f'Bookmark the thread "{title}".', f'Bookmark "{title}".'), ((f"mark/{number}", 1),)
        )
        yield RecordChange(
            (f'Delete the thread "{title}".', f'Delete "{title}".'), ((f"deleted/{number}", 1),)
        )
        yield RecordChange((f'Reply "thanks" to the thread "{title}".',), ((f"reply/{number}", "thanks"),))
    for board in BOARDS:
        for title in ("hello", "ride share"):
            yield RecordChange(
                (f'Start the thread "{title}" in the board "{board}".',),
                (("new/board", board), ("new/title", title)),
            )
    for number, member in enumerate(members):
        yield RecordChange(
            (f'Follow the member "{member}".', f'Follow "{member}".'), ((f"follow/{number}", 1),)
        )
    for name, label in SETTINGS.items():
        yield RecordChange((f'Switch on "{label}" in the preferences.',), ((f"setting/{name}", 1),))
