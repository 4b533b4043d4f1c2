"""Seeded names for the content of sites: people, things, places, topics. Pure."""

import random

FIRST_NAMES = (
    *("Ada", "Ben", "Clara", "David", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kaja", "Luca"),
    *("Mira", "Noor", "Oskar", "Paula", "Quinn", "Rosa", "Samir", "Tessa", "Uma", "Viktor", "Wanda", "Yusuf"),
)
LAST_NAMES = (
    *("Adler", "Brandt", "Costa", "Dahl", "Ebert", "Fischer", "Garcia", "Haas", "Ivanov", "Jansen", "Keller"),
    *("Lund", "Moreau", "Novak", "Okafor", "Petrov", "Rossi", "Silva", "Tanaka", "Ueda", "Vogel", "Weber"),
)
ADJECTIVES = (
    *("Amber", "Bold", "Classic", "Copper", "Coral", "Crystal", "Dusty", "Elegant", "Folding", "Golden"),
    *("Heavy", "Indigo", "Ivory", "Jade", "Light", "Maple", "Marble", "Modern", "Olive", "Pearl", "Plain"),
    *("Quiet", "Round", "Rustic", "Sandy", "Silver", "Slim", "Smart", "Soft", "Striped", "Velvet", "Woven"),
)
CITIES = (
    *("Athens", "Bergen", "Cairo", "Dublin", "Geneva", "Hanoi", "Istanbul", "Jaipur", "Kyoto", "Lisbon"),
    *("Madrid", "Nairobi", "Oslo", "Porto", "Quito", "Riga", "Seville", "Turin", "Vienna", "Zagreb"),
)
AIRLINES = ("AX", "BQ", "FN", "KR", "LW", "VT")
TOPICS = (
    *("autumn fair", "backup plan", "book club", "budget", "bus times", "choir", "coffee corner", "deadline"),
    *("field trip", "garden", "holiday rota", "invoice", "key return", "lecture notes", "lost umbrella"),
    *("lunch", "meeting room", "new printer", "office plants", "parking", "photo album", "quarterly report"),
    *("recycling", "safety drill", "spare chairs", "team photo", "tickets", "travel costs", "welcome party"),
    *("window repair", "workshop", "yearbook", "bread recipe", "night train", "piano lesson", "rain barrel"),
)


class Words:
    """Draws names, numbers, prices and dates for one site from its seed."""

    def __init__(self, seed: int, site: str) -> None:
        self.random = random.Random(f"words of {site}/{seed}")

    def some(self, words: tuple[str, ...], count: int) -> list[str]:
        """Return ``count`` different words of ``words``. Raises ValueError if ``words`` has fewer."""
        return self.random.sample(words, count)

    def people(self, count: int) -> list[str]:
        """Return ``count`` full names, whose first names all differ."""
        return [
            f"{first} {last}"
            for first, last in zip(
                self.some(FIRST_NAMES, count), self.shuffled(LAST_NAMES, count), strict=True
            )
        ]

    def shuffled(self, words: tuple[str, ...], count: int) -> list[str]:
        """Return ``count`` words of ``words``, which may repeat."""
        return self.random.choices(words, k=count)

    def things(self, nouns: tuple[str, ...]) -> list[str]:
        """Return an adjective with each noun, such as `Amber Kettle`."""
        return [
            f"{adjective} {noun}"
            for adjective, noun in zip(self.shuffled(ADJECTIVES, len(nouns)), nouns, strict=True)
        ]

    def number(self, least: int, most: int) -> int:
        """Return a whole number in [least, most]."""
        return self.random.randint(least, most)

    def numbers(self, count: int) -> list[int]:
        """Return ``count`` different numbers of four digits."""
        return self.random.sample(range(1000, 10_000), count)

    def city(self) -> str:
        """Return a city."""
        return self.random.choice(CITIES)

    def airline(self) -> str:
        """Return the two-letter code of an airline."""
        return self.random.choice(AIRLINES)

    def price(self) -> str:
        """Return a price in dollars."""
        return f"${self.number(4, 90)}.{self.random.choice(('00', '50', '90', '99'))}"

    def date(self) -> str:
        """Return a day of a month, such as `12 May`."""
        months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
        return f"{self.number(1, 28)} {self.random.choice(months)}"
