"""Review sentences made from a small grammar: synthetic, and labelled by construction.

Nobody wrote these reviews. They exist so that a classifier has something to learn without a
download, and they are made so that counting words is not enough:

- negation turns a clause around: "was not good", "never felt dull", "hardly impressed me";
- in a contrast the main clause decides: "A, but B" is B, "although A, B" is B, "A, even though B"
  is A, and the other clause always says the opposite;
- intensifiers ("very", "truly", "at all") change nothing but the wording.
"""

import random

from qkv.data.examples import Labelled

COUNT = 8_000  # as many positive as negative ones
SEED = 2017
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


def reviews() -> list[Labelled]:
    """Distinct synthetic sentences with the labels negative and positive, always the same ones."""
    chance = random.Random(SEED)
    made: dict[str, str] = {}
    for label in LABELS:
        before = len(made)
        while len(made) < before + COUNT // 2:
            made.setdefault(_sentence(chance, label), label)
    examples = [Labelled(text, label) for text, label in made.items()]
    chance.shuffle(examples)
    return examples


def _sentence(chance: random.Random, label: str) -> str:
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
    never = "was never" if link == "was" else f"never {link}"
    hardly = "was hardly" if link == "was" else f"hardly {link}"
    return chance.choice(
        (
            f"the {thing} {LINKS[link]} {chance.choice(STRONGER_AFTER_NOT)}{adjective}",
            f"the {thing} {never} {adjective}",
            f"the {thing} {hardly} {adjective}",
        )
    )


def _opposite(label: str) -> str:
    return LABELS[1 - LABELS.index(label)]
