"""English sentences about dates and amounts with their German translations: synthetic pairs.

The frames are written here, the dates and amounts come from CLDR (`amounts.py`). Word order
differs as it does between the languages: "arrives on May 2" is "kommt am 2. Mai an".
"""

import random
from string import Formatter

from qkv.data.amounts import AMOUNTS, Both
from qkv.data.examples import Pair

COUNT = 12_000
SEED = 1892

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
    chance = random.Random(SEED)
    made: dict[str, str] = {}
    while len(made) < COUNT:
        english, german = _sentence(chance)
        made.setdefault(english, german)
    pairs = [Pair(english, german) for english, german in made.items()]
    chance.shuffle(pairs)  # a frame with few sentences to give is used up early
    return pairs


def _sentence(chance: random.Random) -> Both:
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
