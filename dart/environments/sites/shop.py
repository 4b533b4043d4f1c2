"""A shop: categories, products with reviews, a cart, a checkout, orders, a wish list and settings."""

from collections.abc import Iterator

from dart.environments.sites.machine import (
    Add,
    Assign,
    Element,
    Field,
    Kind,
    RecordGuard,
    Restore,
    Scope,
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
from dart.environments.sites.words import Words

CATEGORIES = {
    "Kitchen": ("Kettle", "Mug", "Teapot", "Bowl", "Tray"),
    "Office": ("Lamp", "Notebook", "Stapler", "Binder", "Pen Set"),
    "Garden": ("Watering Can", "Trowel", "Planter", "Bench", "Lantern"),
    "Bedroom": ("Pillow", "Blanket", "Mirror", "Rug", "Nightstand"),
    "Travel": ("Backpack", "Suitcase", "Umbrella", "Bottle", "Neck Rest"),
    "Music": ("Ukulele", "Metronome", "Drumsticks", "Tuner", "Music Stand"),
}
PER_PAGE = 4
MOST_OF_ONE = 3
"""Largest quantity of one product in the cart."""
SETTINGS = {"news": "Newsletter", "offers": "Special offers", "reminders": "Cart reminders"}
TOPICS = {"delivery": "Delivery", "returns": "Returns", "payment": "Payment", "warranty": "Warranty"}
ORDERS = 4


def shop(words: Words) -> SiteDefinition:
    """Return a shop whose products, prices and orders are drawn from ``words``."""
    products = [name for nouns in CATEGORIES.values() for name in words.things(nouns)]
    return SiteDefinition(
        name="shop",
        brand=words.some(("Marktplatz", "Corner Store", "Habitat & Co", "Good Things", "The Pantry"), 1)[0],
        tagline="Everything for home and away",
        navigation=(("Home", "home"), ("Categories", "categories"), ("Cart", "cart"), ("Help", "help")),
        menu=("Account", (("Orders", "orders"), ("Wish list", "wishes"), ("Settings", "settings"))),
        search=_search(),
        screens=tuple(_screens(words, products)),
        records=_records(products),
        changes=tuple(_changes(products)),
    )


def _search() -> Element:
    found = tuple((category, f"found-{category.lower()}") for category in CATEGORIES)
    fields = (Field("query", "Search"),)
    return Element(Kind.FORM, "Search", "found-none", fields=fields, destinations=found)


def _records(products: list[str]) -> dict[str, SiteRecord]:
    records = {
        "cart/items": SiteRecord(0, Scope.INCIDENTAL),
        "order/placed": SiteRecord(0),
        "order/city": SiteRecord(""),
    }
    for number in range(len(products)):
        records[f"cart/{number}"] = SiteRecord(0)
        records[f"wish/{number}"] = SiteRecord(0)
    records |= {f"setting/{name}": SiteRecord(0) for name in SETTINGS}
    records |= {f"cancelled/{number}": SiteRecord(0) for number in range(ORDERS)}
    return records


def _screens(words: Words, products: list[str]) -> Iterator[SiteScreen]:
    prices = [words.price() for _ in products]
    yield _home(products, prices)
    yield from _categories(products, prices)
    for number, name in enumerate(products):
        yield from _product(words, number, name, prices[number])
    yield from _cart(products, prices)
    yield from _orders(words, products)
    yield from _account(products)
    yield from _help()


def _home(products: list[str], prices: list[str]) -> SiteScreen:
    shelf = tuple(_card(number, products, prices) for number in range(0, len(products), 8))
    return SiteScreen(
        "home",
        "the home page",
        "Picked for you",
        (Listing(shelf), Actions((link("All categories", "categories"),))),
    )


def _card(number: int, products: list[str], prices: list[str]) -> Item:
    return Item(link(products[number], f"product-{number}"), (prices[number],))


def _categories(products: list[str], prices: list[str]) -> Iterator[SiteScreen]:
    tiles = tuple(
        Item(link(category, f"category-{category.lower()}-1"), ("5 products",)) for category in CATEGORIES
    )
    yield SiteScreen("categories", "the list of categories", "Categories", (Listing(tiles),))
    for index, category in enumerate(CATEGORIES):
        cards = [_card(number, products, prices) for number in range(index * 5, index * 5 + 5)]
        shelves, id_ = pages(cards, PER_PAGE), f"category-{category.lower()}"
        for page, shelf in enumerate(shelves, 1):
            turns = Tabs(tuple((f"Page {n}", f"{id_}-{n}") for n in range(1, len(shelves) + 1)))
            name = f'page {page} of the category "{category}"'
            yield SiteScreen(f"{id_}-{page}", name, category, (Listing(shelf), turns))
        yield SiteScreen(
            f"found-{category.lower()}",
            f'the results of a search for "{category}"',
            f"Results for {category}",
            (Listing(tuple(cards[:3])), Actions((link(f"More in {category}", f"{id_}-1"),))),
        )
    nothing = (Paragraph("No product matches."), Actions((link("Browse categories", "categories"),)))
    yield SiteScreen("found-none", "the results of a search that finds nothing", "No results", nothing)


def _product(words: Words, number: int, name: str, price: str) -> Iterator[SiteScreen]:
    views = Tabs((("Details", f"product-{number}"), ("Reviews", f"reviews-{number}")))
    cart, wish = f"cart/{number}", f"wish/{number}"
    more = (Add(cart, 1), Add("cart/items", 1), notice("Added to the cart."))
    facts = (("Price", price), ("Stock", f"{words.number(2, 40)} left"), ("In your cart", Shown(cart)))
    buttons = (
        button("Add to cart", more, (RecordGuard(cart, "below", MOST_OF_ONE),)),
        check_box("On my wish list", wish),
    )
    yield SiteScreen(
        f"product-{number}",
        f'the page of the product "{name}"',
        name,
        (views, Facts(facts), Actions(buttons), Actions((link("View cart", "cart"),))),
    )
    opinions = tuple(
        Item(f"{person}: {opinion}", (f"{words.number(2, 5)} of 5 stars",))
        for person, opinion in zip(
            words.people(3), ("Just right.", "Does what it should.", "Smaller than I thought."), strict=True
        )
    )
    yield SiteScreen(f"reviews-{number}", f'the reviews of "{name}"', name, (views, Listing(opinions)))


def _cart(products: list[str], prices: list[str]) -> Iterator[SiteScreen]:
    lines = []
    for number, name in enumerate(products):
        record = f"cart/{number}"
        fewer = button("−", (Add(record, -1), Add("cart/items", -1)))
        lines.append(
            Item(
                link(name, f"product-{number}"),
                (prices[number], Shown(record, "Quantity ")),
                (fewer,),
                (RecordGuard(record, "above", 0),),
            )
        )
    is_filled = RecordGuard("cart/items", "above", 0)
    empty = (Restore("cart/"), notice("The cart is empty now."))
    yield SiteScreen(
        "cart",
        "the cart",
        "Your cart",
        (
            Listing(tuple(lines), "Your cart is empty."),
            Actions(
                (
                    Element(Kind.BUTTON, "Check out", "checkout", guards=(is_filled,)),
                    button("Empty the cart", empty, (is_filled,)),
                    link("Continue shopping", "categories"),
                )
            ),
        ),
    )
    order = (Assign("order/city", TypedText("city")), Assign("order/placed", 1), Restore("cart/"))
    place = Element(Kind.FORM, "Place the order", "ordered", order, (is_filled,), (Field("city", "City"),))
    yield SiteScreen(
        "checkout",
        "the checkout",
        "Checkout",
        (
            Paragraph(Shown("cart/items", "Articles in your cart: ")),
            Actions((place,)),
            Actions((link("Back to the cart", "cart"),)),
        ),
    )
    thanks = Paragraph(Shown("order/city", "Thank you. Your order goes to ", "."))
    yield SiteScreen("ordered", "the confirmation of an order", "Order placed", (thanks,))


def _orders(words: Words, products: list[str]) -> Iterator[SiteScreen]:
    numbers = words.numbers(ORDERS)
    dates = [words.date() for _ in numbers]
    bought = words.random.sample(products, ORDERS)
    status = ((0, "on its way"), (1, "cancelled"))
    lines = tuple(
        Item(
            link(f"Order {numbers[order]}", f"order-{order}"),
            (dates[order], Shown(f"cancelled/{order}", words=status)),
        )
        for order in range(ORDERS)
    )
    yield SiteScreen("orders", "the order history", "Your orders", (Listing(lines),))
    for order in range(ORDERS):
        record = f"cancelled/{order}"
        facts = (
            ("Ordered", dates[order]),
            ("Article", bought[order]),
            ("Status", Shown(record, words=status)),
        )
        cancel = button("Cancel this order", (Assign(record, 1),), (RecordGuard(record, "is", 0),))
        yield SiteScreen(
            f"order-{order}",
            f"the details of the {_ordinal(order)} order in the order history",
            f"Order {numbers[order]}",
            (Facts(facts), Actions((cancel,)), Actions((link("All orders", "orders"),))),
        )


def _ordinal(index: int) -> str:
    return ("first", "second", "third", "fourth")[index]


def _account(products: list[str]) -> Iterator[SiteScreen]:
    wishes = tuple(
        Item(
            link(name, f"product-{number}"),
            (),
            (button("Remove", (Assign(f"wish/{number}", 0),)),),
            (RecordGuard(f"wish/{number}", "is", 1),),
        )
        for number, name in enumerate(products)
    )
    yield SiteScreen("wishes", "the wish list", "Wish list", (Listing(wishes, "No wishes yet."),))
    views = Tabs((("Messages", "settings"), ("Privacy", "privacy")))
    boxes = tuple(check_box(label, f"setting/{name}") for name, label in SETTINGS.items())
    yield SiteScreen(
        "settings",
        "the settings of messages",
        "Settings",
        (views, Paragraph("Which messages may we send you?"), Actions(boxes)),
    )
    privacy = Paragraph("We keep your orders for ten years and nothing else.")
    yield SiteScreen("privacy", "the privacy page of the settings", "Privacy", (views, privacy))


def _help() -> Iterator[SiteScreen]:
    topics = tuple(Item(link(label, f"help-{topic}")) for topic, label in TOPICS.items())
    yield SiteScreen("help", "the list of help topics", "How can we help?", (Listing(topics),))
    for topic, label in TOPICS.items():
        text = Paragraph(f"All about {label.lower()}: write to us and we reply within a day.")
        back = Actions((link("All topics", "help"),))
        yield SiteScreen(f"help-{topic}", f'the help topic "{label}"', label, (text, back))


def _changes(products: list[str]) -> Iterator[RecordChange]:
    for number, name in enumerate(products):
        for quantity in range(1, MOST_OF_ONE + 1):
            sentences = (
                f'Add {quantity} of "{name}" to the cart.',
                f'Put "{name}" into the cart, quantity {quantity}.',
            )
            yield RecordChange(sentences, ((f"cart/{number}", quantity),))
        yield RecordChange(
            (f'Put "{name}" on the wish list.', f'Add "{name}" to your wishes.'), ((f"wish/{number}", 1),)
        )
    for order in range(ORDERS):
        sentence = f"Cancel the {_ordinal(order)} order in the order history."
        yield RecordChange((sentence,), ((f"cancelled/{order}", 1),))
    for name, label in SETTINGS.items():
        yield RecordChange((f'Switch on "{label}" in the settings.',), ((f"setting/{name}", 1),))
    for city in ("Oslo", "Lisbon", "Vienna"):
        yield RecordChange(
            (f'Order any product to "{city}".', f'Buy one thing and have it sent to "{city}".'),
            (("order/placed", 1), ("order/city", city)),
        )
