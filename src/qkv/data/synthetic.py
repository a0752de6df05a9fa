"""Synthetic corpora: labelled review sentences, and English sentences with German translations.

Nobody wrote the reviews. They let a classifier be trained without a download, and are made so that
counting words is not enough:

- negation inverts a clause: "was not good", "never felt dull", "hardly impressed me";
- in a contrast the main clause decides: "A, but B" is B, "although A, B" is B, "A, even though B"
  is A, and the other clause always has the opposite label;
- intensifiers ("very", "truly", "at all") change nothing but the wording.

The translation templates are written here; dates, times, amounts and prices come from Unicode's
CLDR through Babel. Word order differs as it does between the languages: "arrives on May 2" is
"kommt am 2. Mai an".
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

INTENSIFIERS = ("", "", "very ", "really ", "truly ", "so ", "rather ", "quite ")

INTENSIFIERS_AFTER_NOT = ("", "", "really ", "at all ", "even remotely ")

OPENINGS = ("", "", "", "honestly, ", "to be fair, ", "in the end, ", "for me, ", "this time, ")


def reviews() -> list[LabelledText]:
    """Distinct synthetic sentences with the labels negative and positive, always the same ones."""
    rng = random.Random(REVIEW_SEED)
    labels: dict[str, str] = {}
    for label in LABELS:
        target = len(labels) + REVIEW_COUNT // 2
        while len(labels) < target:
            labels.setdefault(_review_sentence(rng, label), label)
    examples = [LabelledText(text, label) for text, label in labels.items()]
    rng.shuffle(examples)
    return examples


def _review_sentence(rng: random.Random, label: str) -> str:
    thing, second = rng.sample(THINGS, 2)
    main = _clause(rng, thing, label)
    agreeing = _clause(rng, second, label)
    opposing = _clause(rng, second, _opposite(label))
    text = rng.choice(
        (
            main,
            main,
            main,
            f"{main} and {agreeing}",
            f"{opposing}, but {main}",
            f"although {opposing}, {main}",
            f"{main}, even though {opposing}",
        )
    )
    text = rng.choice(OPENINGS) + text
    return f"{text[0].upper()}{text[1:]}."


def _clause(rng: random.Random, thing: str, label: str) -> str:
    """A statement about the thing with this label, three times in ten by negation."""
    negated = rng.random() < 3 / 10
    polarity = label
    if negated:
        polarity = _opposite(label)
    if rng.random() < 1 / 4:
        past, plain = rng.choice(EFFECTS[polarity])
        if negated:
            past = rng.choice((f"did not {plain}", f"never {past}", f"hardly {past}"))
        return f"the {thing} {past}"
    adjective = rng.choice(ADJECTIVES[polarity])
    link = rng.choice(tuple(LINKS))
    if not negated:
        return f"the {thing} {link} {rng.choice(INTENSIFIERS)}{adjective}"
    never = f"never {link}"
    hardly = f"hardly {link}"
    if link == "was":
        never = "was never"
        hardly = "was hardly"
    return rng.choice(
        (
            f"the {thing} {LINKS[link]} {rng.choice(INTENSIFIERS_AFTER_NOT)}{adjective}",
            f"the {thing} {never} {adjective}",
            f"the {thing} {hardly} {adjective}",
        )
    )


def _opposite(label: str) -> str:
    return LABELS[1 - LABELS.index(label)]


LANGUAGES = ("en_US", "de_DE")

CURRENCIES = ("USD", "EUR", "GBP", "CHF")

TextPair = tuple[str, str]  # in English, in German

AmountSampler = Callable[[random.Random], TextPair]


def _in_both_languages(write: Callable[[str], str]) -> TextPair:
    """The same value in both languages; CLDR's no-break spaces become plain ones."""
    english, german = (" ".join(write(language).split()) for language in LANGUAGES)
    return english, german


def _any_day(rng: random.Random) -> date:
    return date(1950, 1, 1) + timedelta(days=rng.randrange(30_000))


def _date(rng: random.Random) -> TextPair:
    """March 3, 2025 · 3. März 2025, or in figures."""
    day = _any_day(rng)
    style = rng.choice(("long", "long", "medium", "short"))
    return _in_both_languages(lambda language: format_date(day, style, language))


def _full_date(rng: random.Random) -> TextPair:
    """Monday, March 3, 2025 · Montag, 3. März 2025."""
    day = _any_day(rng)
    return _in_both_languages(lambda language: format_date(day, "full", language))


def _day_of_year(rng: random.Random) -> TextPair:
    """March 3 · 3. März."""
    day = _any_day(rng)
    return _in_both_languages(lambda language: format_skeleton("MMMMd", day, locale=language))


def _month_of_year(rng: random.Random) -> TextPair:
    """March 2025 · März 2025."""
    day = _any_day(rng)
    return _in_both_languages(lambda language: format_skeleton("yMMMM", day, locale=language))


def _month(rng: random.Random) -> TextPair:
    number = rng.randint(1, 12)
    return _in_both_languages(lambda language: get_month_names("wide", locale=language)[number])


def _weekday(rng: random.Random) -> TextPair:
    number = rng.randrange(7)
    return _in_both_languages(lambda language: get_day_names("wide", locale=language)[number])


def _time(rng: random.Random) -> TextPair:
    """3:05 PM · 15:05."""
    moment = time(rng.randrange(24), rng.choice((0, 30, 5 * rng.randrange(12))))
    return _in_both_languages(lambda language: format_time(moment, "short", locale=language))


def _relative_time(direction: int) -> AmountSampler:
    """3 days ago · vor 3 Tagen, or in 3 days · in 3 Tagen."""

    def draw(rng: random.Random) -> TextPair:
        unit = rng.choice(("minutes", "hours", "days", "weeks"))
        count = rng.randint(2, {"minutes": 59, "hours": 23, "days": 6, "weeks": 50}[unit])
        span = direction * timedelta(**{unit: count})
        return _in_both_languages(
            lambda language: format_timedelta(
                span, threshold=1, add_direction=True, locale=language
            )
        )

    return draw


def _unit(maximum: int, *units: str) -> AmountSampler:
    """2.5 kilometers · 2,5 Kilometer."""

    def draw(rng: random.Random) -> TextPair:
        unit = rng.choice(units)
        integer = rng.randint(1, maximum)
        amount = rng.choice((integer, integer, integer + rng.randint(1, 9) / 10))
        return _in_both_languages(
            lambda language: format_unit(amount, unit, "long", locale=language)
        )

    return draw


def _price(rng: random.Random) -> TextPair:
    """$12.50 · 12,50 $, or in words."""
    amount = rng.choice((rng.randint(2, 90), rng.randint(2, 9_000)))
    cents = rng.choice((0, 0.5, rng.randrange(100) / 100))
    currency = rng.choice(CURRENCIES)
    style = "name" if rng.random() < 1 / 3 else "standard"

    def write(language: str) -> str:
        return format_currency(amount + cents, currency, locale=language, format_type=style)  # type: ignore[arg-type]

    return _in_both_languages(write)


def _count(rng: random.Random) -> TextPair:
    """12,345 · 12.345."""
    number = rng.randint(2, 10 ** rng.randint(2, 6))
    return _in_both_languages(lambda language: format_decimal(number, locale=language))


def _percent(rng: random.Random) -> TextPair:
    """45% · 45 %."""
    number = rng.randint(2, 99)
    return _in_both_languages(lambda language: format_percent(number / 100, locale=language))


AMOUNT_SAMPLERS: dict[str, AmountSampler] = {
    "date": _date,
    "full_date": _full_date,
    "day": _day_of_year,
    "month_of_year": _month_of_year,
    "month": _month,
    "weekday": _weekday,
    "last_weekday": _weekday,
    "time": _time,
    "later": _time,
    "ago": _relative_time(-1),
    "hence": _relative_time(1),
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
WORDS: dict[str, tuple[TextPair, ...]] = {
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

FRAMES: tuple[TextPair, ...] = (
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
    """Distinct English sentences with German translations, always the same in the same order."""
    rng = random.Random(PAIR_SEED)
    german_of: dict[str, str] = {}
    while len(german_of) < PAIR_COUNT:
        english, german = _sentence_pair(rng)
        german_of.setdefault(english, german)
    pairs = [Pair(english, german) for english, german in german_of.items()]
    rng.shuffle(pairs)  # frames with few distinct sentences are exhausted early
    return pairs


def _sentence_pair(rng: random.Random) -> TextPair:
    english, german = rng.choice(FRAMES)
    fields = [name for _, name, _, _ in Formatter().parse(english) if name]
    english_values: dict[str, str] = {}
    german_values: dict[str, str] = {}
    for name in fields:
        pair = rng.choice(WORDS[name]) if name in WORDS else AMOUNT_SAMPLERS[name](rng)
        english_values[name], german_values[name] = pair
    return (
        _sentence(english.format_map(english_values)),
        _sentence(german.format_map(german_values)),
    )


def _sentence(text: str) -> str:
    """The text with a capital, and a full stop unless it is a question."""
    stop = "" if text.endswith("?") else "."
    return text[0].upper() + text[1:] + stop
