"""The explanation of a translation for the terminal: a line a word, and what was lost or added."""

from qkv.explain.render.page import Table
from qkv.explain.why.translation_reason import TargetWord, TranslationReason
from qkv.explain.why.wording import fell, number, seen, share

COLUMNS = ("likely", "looked at", "depends on", "")


def translation_table(reason: TranslationReason) -> Table:
    """Each target word, how likely it was, and the source words it goes back to."""
    names = [seen(word.word.text) for word in reason.sources]
    targets = tuple(seen(word.word.text) for word in reason.targets)
    return Table("", targets, COLUMNS, [_cells(word, names) for word in reason.targets])


def lost_and_added(reason: TranslationReason) -> list[str]:
    """How far looks and hiding agree, and which words may have been dropped or invented."""
    said = []
    if reason.agreement is not None:
        of_all = f"{reason.agreement:.0%} of the words"
        said.append(f"looks (layer {reason.layer}) and hiding agree on {of_all}")
    said += [
        f"dropped? “{word.word.text}”: hiding it moves no word by more than {number(word.moved)}"
        for word in reason.dropped
    ]
    said += [
        f"invented? “{word.word.text}”: no source word moves it by more than "
        f"{number(max(map(abs, word.ablation)))}, the whole source by {number(word.whole)}"
        for word in reason.invented
    ]
    return said


def _cells(word: TargetWord, names: list[str]) -> list[str]:
    looked = f"{names[word.looked_at]} {share(max(word.attention))}"
    if word.moved_by is None:
        return [share(word.probability), looked, "", "invented?"]
    depends = f"{names[word.moved_by]} {fell(max(word.ablation))}"
    return [share(word.probability), looked, depends, "" if word.agrees else "differ"]
