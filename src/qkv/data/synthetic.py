"""Review sentences made from a small grammar: synthetic, and labelled by construction.

Nobody wrote these reviews. They exist so that a classifier has something to learn without a
download, and they are made so that counting words is not enough:

- negation turns a clause around: "was not good", "never felt dull", "hardly impressed me";
- in a contrast the main clause decides: "A, but B" is B, "although A, B" is B, "A, even though B"
  is A, and the other clause always says the opposite;
- intensifiers ("very", "truly", "at all") change nothing but the wording.
"""

import random
from collections.abc import Callable
from datetime import date, time, timedelta
from string import Formatter

from babel.dates import (
    format_date,
    format_skeleton,
    format_time,
    format_timedelta,
    get_day_names,
    get_month_names,
)
from babel.numbers import format_currency, format_decimal, format_percent
from babel.units import format_unit

from qkv.data.read import LabelledText, Pair

# FOLDED data/amounts: Dates, times, amounts and prices as they are written in English and in
#   German.
#
#   All words and formats come from Unicode's CLDR through Babel; only the choice of values is
#   ours.
# FOLDED data/translations: English sentences about dates and amounts with their German
#   translations: synthetic pairs.
#
#   The frames are written here, the dates and amounts come from CLDR (`amounts.py`). Word
#   order
#   differs as it does between the languages: "arrives on May 2" is "kommt am 2. Mai an".

REVIEW_COUNT = 8_000  # as many positive as negative ones

REVIEW_SEED = 2017

LABELS = ("negative", "positive")

THINGS = (
    "film", "plot", "ending", "soundtrack", "cast", "dialogue", "book", "first chapter", "novel",
    "album", "concert", "play", "meal", "soup", "dessert", "coffee", "service", "waiter", "hotel",
    "room", "breakfast", "view", "app", "keyboard", "camera", "screen", "battery", "update",
)  # fmt: skip

ADJECTIVES = {
    "positive": (
        "good", "great", "lovely", "excellent", "wonderful", "superb", "delightful", "impressive",
        "brilliant", "pleasant", "charming", "outstanding", "fantastic", "memorable",
    ),
    "negative": (
        "bad", "poor", "awful", "terrible", "dreadful", "horrible", "disappointing", "dull",
        "mediocre", "unpleasant", "annoying", "pathetic", "forgettable", "clumsy",
    ),
}  # fmt: skip

EFFECTS = {  # what the thing did, and the plain form that follows "did not"
    "positive": (
        ("delighted us", "delight us"), ("impressed me", "impress me"),
        ("made my day", "make my day"), ("won me over", "win me over"),
        ("exceeded my hopes", "exceed my hopes"), ("charmed everyone", "charm everyone"),
    ),
    "negative": (
        ("let us down", "let us down"), ("bored me", "bore me"), ("ruined my day", "ruin my day"),
        ("annoyed everyone", "annoy everyone"), ("wasted my time", "waste my time"),
        ("disappointed me", "disappoint me"),
    ),
}  # fmt: skip

LINKS = {"was": "was not", "seemed": "did not seem", "felt": "did not feel"}

STRONGER = ("", "", "very ", "really ", "truly ", "so ", "rather ", "quite ")

STRONGER_AFTER_NOT = ("", "", "really ", "at all ", "even remotely ")

OPENINGS = ("", "", "", "honestly, ", "to be fair, ", "in the end, ", "for me, ", "this time, ")


def reviews() -> list[LabelledText]:
    """Distinct synthetic sentences with the labels negative and positive, always the same ones."""
    chance = random.Random(REVIEW_SEED)
    made: dict[str, str] = {}
    for label in LABELS:
        before = len(made)
        while len(made) < before + REVIEW_COUNT // 2:
            made.setdefault(_review_sentence(chance, label), label)
    examples = [LabelledText(text, label) for text, label in made.items()]
    chance.shuffle(examples)
    return examples


def _review_sentence(chance: random.Random, label: str) -> str:
    thing, second = chance.sample(THINGS, 2)
    main = _clause(chance, thing, label)
    again, against = (_clause(chance, second, side) for side in (label, _opposite(label)))
    text = chance.choice(
        (
            main,
            main,
            main,
            f"{main} and {again}",
            f"{against}, but {main}",
            f"although {against}, {main}",
            f"{main}, even though {against}",
        )
    )
    text = chance.choice(OPENINGS) + text
    return f"{text[0].upper()}{text[1:]}."


def _clause(chance: random.Random, thing: str, label: str) -> str:
    """One statement about the thing that means the label, three times in ten by denial."""
    denied = chance.random() < 3 / 10
    said = _opposite(label) if denied else label
    if chance.random() < 1 / 4:
        past, plain = chance.choice(EFFECTS[said])
        if denied:
            past = chance.choice((f"did not {plain}", f"never {past}", f"hardly {past}"))
        return f"the {thing} {past}"
    adjective = chance.choice(ADJECTIVES[said])
    link = chance.choice(tuple(LINKS))
    if not denied:
        return f"the {thing} {link} {chance.choice(STRONGER)}{adjective}"
    if link == "was":
        never = "was never"
    else:
        never = f"never {link}"
    if link == "was":
        hardly = "was hardly"
    else:
        hardly = f"hardly {link}"
    return chance.choice(
        (
            f"the {thing} {LINKS[link]} {chance.choice(STRONGER_AFTER_NOT)}{adjective}",
            f"the {thing} {never} {adjective}",
            f"the {thing} {hardly} {adjective}",
        )
    )


def _opposite(label: str) -> str:
    return LABELS[1 - LABELS.index(label)]


LANGUAGES = ("en_US", "de_DE")

CURRENCIES = ("USD", "EUR", "GBP", "CHF")

Both = tuple[str, str]  # in English, in German

Draw = Callable[[random.Random], Both]


def _both(write: Callable[[str], str]) -> Both:
    """The same value in both languages; CLDR's no-break spaces become plain ones."""
    english, german = (" ".join(write(language).split()) for language in LANGUAGES)
    return english, german


def _any_day(chance: random.Random) -> date:
    return date(1950, 1, 1) + timedelta(days=chance.randrange(30_000))


def _date(chance: random.Random) -> Both:
    """March 3, 2025 · 3. März 2025, or in figures."""
    day = _any_day(chance)
    style = chance.choice(("long", "long", "medium", "short"))
    return _both(lambda language: format_date(day, style, language))


def _full_date(chance: random.Random) -> Both:
    """Monday, March 3, 2025 · Montag, 3. März 2025."""
    day = _any_day(chance)
    return _both(lambda language: format_date(day, "full", language))


def _day_of_year(chance: random.Random) -> Both:
    """March 3 · 3. März."""
    day = _any_day(chance)
    return _both(lambda language: format_skeleton("MMMMd", day, locale=language))


def _month_of_year(chance: random.Random) -> Both:
    """March 2025 · März 2025."""
    day = _any_day(chance)
    return _both(lambda language: format_skeleton("yMMMM", day, locale=language))


def _month(chance: random.Random) -> Both:
    number = chance.randint(1, 12)
    return _both(lambda language: get_month_names("wide", locale=language)[number])


def _weekday(chance: random.Random) -> Both:
    number = chance.randrange(7)
    return _both(lambda language: get_day_names("wide", locale=language)[number])


def _time(chance: random.Random) -> Both:
    """3:05 PM · 15:05."""
    moment = time(chance.randrange(24), chance.choice((0, 30, 5 * chance.randrange(12))))
    return _both(lambda language: format_time(moment, "short", locale=language))


def _away(direction: int) -> Draw:
    """3 days ago · vor 3 Tagen, or in 3 days · in 3 Tagen."""

    def draw(chance: random.Random) -> Both:
        unit = chance.choice(("minutes", "hours", "days", "weeks"))
        count = chance.randint(2, {"minutes": 59, "hours": 23, "days": 6, "weeks": 50}[unit])
        span = direction * timedelta(**{unit: count})
        return _both(
            lambda language: format_timedelta(
                span, threshold=1, add_direction=True, locale=language
            )
        )

    return draw


def _unit(most: int, *units: str) -> Draw:
    """2.5 kilometers · 2,5 Kilometer."""

    def draw(chance: random.Random) -> Both:
        unit = chance.choice(units)
        whole = chance.randint(1, most)
        amount = chance.choice((whole, whole, whole + chance.randint(1, 9) / 10))
        return _both(lambda language: format_unit(amount, unit, "long", locale=language))

    return draw


def _price(chance: random.Random) -> Both:
    """$12.50 · 12,50 $, or in words."""
    amount = chance.choice((chance.randint(2, 90), chance.randint(2, 9_000)))
    cents = chance.choice((0, 0.5, chance.randrange(100) / 100))
    currency = chance.choice(CURRENCIES)
    if chance.random() < 1 / 3:
        style = "name"
    else:
        style = "standard"

    def write(language: str) -> str:
        return format_currency(amount + cents, currency, locale=language, format_type=style)  # type: ignore[arg-type]

    return _both(write)


def _count(chance: random.Random) -> Both:
    """12,345 · 12.345."""
    number = chance.randint(2, 10 ** chance.randint(2, 6))
    return _both(lambda language: format_decimal(number, locale=language))


def _percent(chance: random.Random) -> Both:
    """45% · 45 %."""
    number = chance.randint(2, 99)
    return _both(lambda language: format_percent(number / 100, locale=language))


AMOUNTS: dict[str, Draw] = {
    "date": _date,
    "full_date": _full_date,
    "day": _day_of_year,
    "month_of_year": _month_of_year,
    "month": _month,
    "weekday": _weekday,
    "last_weekday": _weekday,
    "time": _time,
    "later": _time,
    "ago": _away(-1),
    "hence": _away(1),
    "distance": _unit(900, "length-kilometer", "length-meter"),
    "length": _unit(300, "length-meter", "length-centimeter"),
    "mass": _unit(40, "mass-kilogram", "mass-gram"),
    "volume": _unit(40, "volume-liter", "volume-milliliter"),
    "duration": _unit(59, "duration-minute", "duration-hour", "duration-day", "duration-week"),
    "temperature": _unit(38, "temperature-celsius"),
    "speed": _unit(200, "speed-kilometer-per-hour"),
    "area": _unit(400, "area-square-meter"),
    "storage": _unit(900, "digital-megabyte", "digital-gigabyte"),
    "price": _price,
    "count": _count,
    "percent": _percent,
}

PAIR_COUNT = 12_000

PAIR_SEED = 1892

# Feminine and neuter nouns read the same in the nominative and the accusative.
WORDS: dict[str, tuple[Both, ...]] = {
    "who": (
        ("she", "sie"), ("he", "er"), ("my brother", "mein Bruder"), ("Anna", "Anna"),
        ("our neighbor", "unsere Nachbarin"), ("the doctor", "der Arzt"), ("Paul", "Paul"),
        ("your friend", "dein Freund"), ("the teacher", "die Lehrerin"),
    ),
    "event": (
        ("the meeting", "die Besprechung"), ("the concert", "das Konzert"),
        ("the wedding", "die Hochzeit"), ("the exam", "die Prüfung"), ("the game", "das Spiel"),
        ("the exhibition", "die Ausstellung"), ("the festival", "das Fest"),
    ),
    "thing": (
        ("the book", "das Buch"), ("the ticket", "die Karte"), ("the jacket", "die Jacke"),
        ("the bicycle", "das Fahrrad"), ("the lamp", "die Lampe"), ("the room", "das Zimmer"),
        ("the old clock", "die alte Uhr"), ("the picture", "das Bild"),
    ),
    "food": (
        ("potatoes", "Kartoffeln"), ("rice", "Reis"), ("flour", "Mehl"), ("apples", "Äpfel"),
        ("sugar", "Zucker"), ("cheese", "Käse"), ("bread", "Brot"),
    ),
    "drink": (("water", "Wasser"), ("milk", "Milch"), ("juice", "Saft"), ("oil", "Öl")),
    "structure": (
        ("the bridge", "die Brücke"), ("the wall", "die Mauer"), ("the garden", "der Garten"),
        ("the table", "der Tisch"), ("the rope", "das Seil"), ("the ship", "das Schiff"),
    ),
}  # fmt: skip

FRAMES: tuple[Both, ...] = (
    ("{who} arrives on {date}", "{who} kommt am {date} an"),
    ("I think that {who} arrives on {date}", "ich glaube, dass {who} am {date} ankommt"),
    ("{who} was born on {full_date}", "{who} wurde am {full_date} geboren"),
    ("{event} is on {full_date}", "{event} ist am {full_date}"),
    ("{event} begins on {day} at {time}", "{event} beginnt am {day} um {time} Uhr"),
    ("{event} was moved to {date}", "{event} wurde auf den {date} verschoben"),
    ("does {who} know that {event} is on {day}?", "weiß {who}, dass {event} am {day} ist?"),
    ("please pay {price} by {date}", "bitte zahlen Sie {price} bis zum {date}"),
    ("every {weekday} the bus leaves at {time}", "jeden {weekday} fährt der Bus um {time} Uhr ab"),
    ("{who} works from {time} to {later}", "{who} arbeitet von {time} bis {later} Uhr"),
    (
        "{who} works from {weekday} to {last_weekday}",
        "{who} arbeitet von {weekday} bis {last_weekday}",
    ),
    ("{event} takes place every year in {month}", "{event} findet jedes Jahr im {month} statt"),
    ("{who} moved to Rome in {month_of_year}", "{who} ist im {month_of_year} nach Rom gezogen"),
    ("{who} lives {distance} from the station", "{who} wohnt {distance} vom Bahnhof entfernt"),
    ("{who} ran {distance} on {weekday}", "{who} ist am {weekday} {distance} gelaufen"),
    ("{structure} is {length} long", "{structure} ist {length} lang"),
    ("{structure} is not {length} long", "{structure} ist nicht {length} lang"),
    ("{who} bought {mass} of {food}", "{who} hat {mass} {food} gekauft"),
    (
        "we need {mass} of {food} and {volume} of {drink}",
        "wir brauchen {mass} {food} und {volume} {drink}",
    ),
    ("{event} lasts {duration}", "{event} dauert {duration}"),
    ("{who} waited {duration}", "{who} hat {duration} gewartet"),
    ("it was {temperature} on {day}", "am {day} waren es {temperature}"),
    ("the car was going {speed}", "das Auto fuhr {speed}"),
    ("the house measures {area} and costs {price}", "das Haus misst {area} und kostet {price}"),
    ("the program needs {storage}", "das Programm braucht {storage}"),
    ("{thing} costs {price}", "{thing} kostet {price}"),
    ("{who} paid {price} for {thing}", "{who} hat {price} für {thing} bezahlt"),
    ("{who} would like to sell {thing} for {price}", "{who} möchte {thing} für {price} verkaufen"),
    ("{who} called {ago}", "{who} hat {ago} angerufen"),
    ("{event} ended {ago}", "{event} ist {ago} zu Ende gegangen"),
    ("{who} comes back {hence}", "{who} kommt {hence} zurück"),
    ("the town has {count} inhabitants", "die Stadt hat {count} Einwohner"),
    ("{count} people saw {event} on {weekday}", "{count} Menschen sahen am {weekday} {event}"),
    ("{percent} of the students passed", "{percent} der Schüler haben bestanden"),
)


def translations() -> list[Pair]:
    """Distinct English sentences, each with its German one, always the same ones in one order."""
    chance = random.Random(PAIR_SEED)
    made: dict[str, str] = {}
    while len(made) < PAIR_COUNT:
        english, german = _sentence_pair(chance)
        made.setdefault(english, german)
    pairs = [Pair(english, german) for english, german in made.items()]
    chance.shuffle(pairs)  # a frame with few sentences to give is used up early
    return pairs


def _sentence_pair(chance: random.Random) -> Both:
    english, german = chance.choice(FRAMES)
    fields = [name for _, name, _, _ in Formatter().parse(english) if name]
    drawn = {
        name: chance.choice(WORDS[name]) if name in WORDS else AMOUNTS[name](chance)
        for name in fields
    }
    return (
        _finished(english.format_map({name: both[0] for name, both in drawn.items()})),
        _finished(german.format_map({name: both[1] for name, both in drawn.items()})),
    )


def _finished(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")
