"""A travel booking: cities with flights and hotels, bookings, trips with seats, and an account."""

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
)
from dart.environments.sites.words import ADJECTIVES, CITIES, Words

NUM_CITIES, PER_CITY = 8, 2
TRIPS = 3
SEATS = {"window": "Window", "middle": "Middle", "aisle": "Aisle"}
MOST_NIGHTS = 4
TRIP_STATES = ((0, "booked"), (1, "cancelled"))
SETTINGS = {"deals": "Mail me deals", "metric": "Metric units", "delays": "Delay alerts"}
ORDINALS = ("first", "second", "third")


def travel(words: Words) -> SiteDefinition:
    """Return a travel booking whose cities, flights and hotels are drawn from ``words``."""
    cities = words.some(CITIES, NUM_CITIES)
    hotels = [f"Hotel {name}" for name in words.some(ADJECTIVES, NUM_CITIES * PER_CITY)]
    flights = [f"{words.airline()} {number}" for number in words.numbers(len(hotels))]
    return SiteDefinition(
        name="travel",
        brand=words.some(("Faraway", "Compass", "Gate 12", "Wanderly", "Blue Route"), 1)[0],
        tagline="Prices include all taxes",
        navigation=(("Home", "home"), ("Cities", "cities"), ("Deals", "deals"), ("My trips", "trips")),
        menu=("Account", (("Alerts", "settings"), ("Travellers", "travellers"), ("Saved", "saved"))),
        search=_search(cities),
        screens=tuple(_screens(words, cities, flights, hotels)),
        records=_records(len(hotels)),
        changes=tuple(_changes(flights, hotels, cities)),
    )


def _search(cities: list[str]) -> Element:
    found = tuple((city, f"flights-{index}") for index, city in enumerate(cities))
    return Element(Kind.FORM, "Search", "not-found", fields=(Field("city", "City"),), destinations=found)


def _records(count: int) -> dict[str, SiteRecord]:
    records = {"traveller": SiteRecord("")}
    for number in range(count):
        records[f"passenger/{number}"] = SiteRecord("")
        records[f"saved/{number}"] = SiteRecord(0)
        records[f"nights/{number}"] = SiteRecord(0)
    for trip in range(TRIPS):
        records[f"cancelled/{trip}"] = SiteRecord(0)
        records[f"seat/{trip}"] = SiteRecord("middle")
    return records | {f"setting/{name}": SiteRecord(0) for name in SETTINGS}


def _screens(words: Words, cities: list[str], flights: list[str], hotels: list[str]) -> Iterator[SiteScreen]:
    browse = Actions((link("All cities", "cities"),))
    tips = tuple(Item(link(city, f"guide-{index}"), ("city guide",)) for index, city in enumerate(cities[:4]))
    yield SiteScreen("home", "the home page", "Where to?", (Listing(tips), browse))
    lines = tuple(Item(link(city, f"flights-{index}")) for index, city in enumerate(cities))
    yield SiteScreen("cities", "the list of cities", "Cities", (Listing(lines),))
    for index, city in enumerate(cities):
        yield from _city(words, index, city, flights, hotels)
    for number, flight in enumerate(flights):
        yield from _flight(words, number, flight, cities[number // PER_CITY])
    for number, hotel in enumerate(hotels):
        yield from _hotel(words, number, hotel, cities[number // PER_CITY])
    yield from _trips(words, cities)
    yield from _account(words, hotels, flights)


def _city(words: Words, index: int, city: str, flights: list[str], hotels: list[str]) -> Iterator[SiteScreen]:
    ids = (f"flights-{index}", f"hotels-{index}", f"guide-{index}")
    views = Tabs(tuple(zip(("Flights", "Hotels", "Guide"), ids, strict=True)))
    numbers = range(index * PER_CITY, (index + 1) * PER_CITY)
    to_city = tuple(Item(link(flights[n], f"flight-{n}"), (words.date(), words.price())) for n in numbers)
    yield SiteScreen(ids[0], f'the flights to "{city}"', city, (views, Listing(to_city)))
    in_city = tuple(Item(link(hotels[n], f"hotel-{n}"), (words.price(),)) for n in numbers)
    yield SiteScreen(ids[1], f'the hotels in "{city}"', city, (views, Listing(in_city)))
    facts = Facts((("Weather", f"{words.number(5, 30)} °C"), ("Sights", str(words.number(3, 40)))))
    yield SiteScreen(ids[2], f'the guide to "{city}"', city, (views, facts))


def _flight(words: Words, number: int, flight: str, city: str) -> Iterator[SiteScreen]:
    passenger = f"passenger/{number}"
    facts = (
        ("To", city),
        ("Leaves", f"{words.number(6, 22)}:{words.random.choice(('05', '20', '45'))}"),
        ("Price", words.price()),
    )
    ways = (
        link("Book this flight", f"book-{number}"),
        link(f"All to {city}", f"flights-{number // PER_CITY}"),
    )
    booked = Paragraph(Shown(passenger, "Booked for "), (RecordGuard(passenger, "is not", ""),))
    yield SiteScreen(
        f"flight-{number}", f'the flight "{flight}"', flight, (Facts(facts), booked, Actions(ways))
    )
    form = Element(
        Kind.FORM,
        "Book",
        f"flight-{number}",
        (Assign(passenger, TypedText("name")), notice("The flight is booked.")),
        fields=(Field("name", "Passenger"),),
    )
    yield SiteScreen(
        f"book-{number}",
        f'the booking form of the flight "{flight}"',
        f"Book {flight}",
        (Paragraph(f"One way to {city}"), Actions((form,)), Actions((link("Back", f"flight-{number}"),))),
    )


def _hotel(words: Words, number: int, hotel: str, city: str) -> Iterator[SiteScreen]:
    nights, saved = f"nights/{number}", f"saved/{number}"
    facts = (("City", city), ("Stars", str(words.number(2, 5))), ("Nights booked", Shown(nights)))
    buttons = (
        button("Add a night", (Add(nights, 1),), (RecordGuard(nights, "below", MOST_NIGHTS),)),
        button("Drop a night", (Add(nights, -1),), (RecordGuard(nights, "above", 0),)),
        check_box("Save", saved),
    )
    back = Actions((link(f"All in {city}", f"hotels-{number // PER_CITY}"),))
    yield SiteScreen(f"hotel-{number}", f'the hotel "{hotel}"', hotel, (Facts(facts), Actions(buttons), back))


def _trips(words: Words, cities: list[str]) -> Iterator[SiteScreen]:
    lines = tuple(
        Item(
            link(f"Trip to {cities[trip]}", f"trip-{trip}"), (Shown(f"cancelled/{trip}", words=TRIP_STATES),)
        )
        for trip in range(TRIPS)
    )
    yield SiteScreen("trips", "your trips", "My trips", (Listing(lines),))
    for trip in range(TRIPS):
        cancelled, seat = f"cancelled/{trip}", f"seat/{trip}"
        ids = (f"trip-{trip}", f"seat-{trip}")
        views, name = Tabs((("Trip", ids[0]), ("Seat", ids[1]))), f"your {ORDINALS[trip]} trip"
        facts = (("Date", words.date()), ("State", Shown(cancelled, words=TRIP_STATES)))
        cancel = button(
            "Cancel this trip",
            (Assign(cancelled, 1), notice("The trip was cancelled.")),
            (RecordGuard(cancelled, "is", 0),),
        )
        title = f"Trip to {cities[trip]}"
        yield SiteScreen(ids[0], f"the details of {name}", title, (views, Facts(facts), Actions((cancel,))))
        choices = tuple(
            button(label, (Assign(seat, value),), (RecordGuard(seat, "is not", value),))
            for value, label in SEATS.items()
        )
        now = Facts((("Your seat", Shown(seat, words=tuple(SEATS.items()))),))
        yield SiteScreen(ids[1], f"the seat of {name}", title, (views, now, Actions(choices)))


def _account(words: Words, hotels: list[str], flights: list[str]) -> Iterator[SiteScreen]:
    deals = tuple(
        Item(link(flights[number], f"flight-{number}"), (f"{words.number(10, 40)} % off",))
        for number in range(0, len(flights), 4)
    )
    yield SiteScreen("deals", "the deals", "Deals of the week", (Listing(deals),))
    saved = tuple(
        Item(link(hotel, f"hotel-{number}"), guards=(RecordGuard(f"saved/{number}", "is", 1),))
        for number, hotel in enumerate(hotels)
    )
    yield SiteScreen("saved", "the saved hotels", "Saved hotels", (Listing(saved, "No hotel saved yet."),))
    views = Tabs((("Alerts", "settings"), ("Travellers", "travellers")))
    boxes = tuple(check_box(label, f"setting/{name}") for name, label in SETTINGS.items())
    yield SiteScreen("settings", "the alerts in the account", "Alerts", (views, Actions(boxes)))
    add = Element(
        Kind.FORM,
        "Add",
        effects=(Assign("traveller", TypedText("name")), notice("The traveller was added.")),
        fields=(Field("name", "Name"),),
    )
    who = Paragraph(Shown("traveller", "Travels with you: "), (RecordGuard("traveller", "is not", ""),))
    yield SiteScreen(
        "travellers", "the travellers in the account", "Travellers", (views, who, Actions((add,)))
    )
    nothing = (Paragraph("We do not fly there."), Actions((link("All cities", "cities"),)))
    yield SiteScreen("not-found", "the results of a search for an unknown city", "No such city", nothing)


def _changes(flights: list[str], hotels: list[str], cities: list[str]) -> Iterator[RecordChange]:
    for number, flight in enumerate(flights):
        for name in ("Ada", "Hugo"):
            sentence = f'Book the flight "{flight}" to {cities[number // PER_CITY]} for "{name}".'
            yield RecordChange((sentence,), ((f"passenger/{number}", name),))
    for number, hotel in enumerate(hotels):
        place = f'"{hotel}" in {cities[number // PER_CITY]}'
        yield RecordChange((f"Save the hotel {place}.", f"Save {place}."), ((f"saved/{number}", 1),))
        for nights in (1, 2, 3):
            sentence = f"Book {place}, nights: {nights}."
            yield RecordChange((sentence,), ((f"nights/{number}", nights),))
    for trip in range(TRIPS):
        yield RecordChange((f"Cancel your {ORDINALS[trip]} trip.",), ((f"cancelled/{trip}", 1),))
        for seat in ("window", "aisle"):
            sentence = f"Choose the {seat} seat for your {ORDINALS[trip]} trip."
            yield RecordChange((sentence,), ((f"seat/{trip}", seat),))
    for name, label in SETTINGS.items():
        yield RecordChange((f'Switch on "{label}" in the account.',), ((f"setting/{name}", 1),))
    for name in ("Mira", "Jonas"):
        yield RecordChange((f'Add the traveller "{name}" to the account.',), (("traveller", name),))
