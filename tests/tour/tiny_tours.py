"""A tour that is over in a update: a few texts, one narrow layer, a handful of steps."""

from dataclasses import replace
from itertools import product
from pathlib import Path

from qkv.data.synthetic import reviews
from qkv.tour import stages
from qkv.tour.stages import ModelSpec, ProgressUpdate, TourPlan
from qkv.tour.tour import TourFolder, tour
from qkv.training.prepare import TrainArgs
from qkv.training.tasks import DataConfig

STEPS = 6
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven")
GERMAN = ("ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben")
THINGS = {"dogs": "Hunde", "cats": "Katzen", "birds": "Vögel", "fish": "Fische", "cows": "Kühe"}
DOCS = "Return the name of the file that the reader has read, or none if there is no file."


def tiny_plan(folder: Path) -> TourPlan:
    """Three models from files in the folder; it is called quick, so that the program finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f'"{each.text}",{each.label}' for each in reviews()[:70]]
    _write(folder / "reviews.csv", ["text,label", *rows])
    sides = product(zip(NUMBERS, GERMAN, strict=True), THINGS.items(), ("red", "old"))
    pairs = [
        f"we can see {n} {adjective} {thing} there,wir sehen {zahl} {adjective} {ding} dort"
        for (n, zahl), (thing, ding), adjective in sides
    ]
    _write(folder / "pairs.csv", ["source,target", *pairs])
    for number in range(9):
        _write(folder / "docs" / f"{number}.txt", [f"{DOCS} See {NUMBERS[number % 7]}."] * 5)
    files = {name: (str(folder / name),) for name in ("reviews.csv", "docs", "pairs.csv")}
    classify = DataConfig(
        files=files["reviews.csv"], text="text", label="label", validation_fraction=0.2
    )
    translate = DataConfig(
        files=files["pairs.csv"], source="source", target="target", validation_fraction=0.2
    )
    return TourPlan(
        name="quick",
        sentiment=stages.sentiment(_args("classify", classify), seconds=1),
        language=stages.language(
            _args("language", DataConfig(files=files["docs"], validation_fraction=0.3)), 1
        ),
        translation=stages.translation(
            replace(_args("translate", translate), tokenizer="characters", context_length=256),
            seconds=1,
        ),
        max_tokens=11,
        max_texts=13,
        seconds=1,
    )


def _args(job: str, data: DataConfig) -> TrainArgs:
    small = {"model": {"width": 16, "layers": 1, "dropout": 0.1}, "evaluate_every": 3}
    args = TrainArgs(job, data, size="tiny", vocab_size=300, context_length=64, batch=128, seed=5)
    return replace(args, steps=STEPS, settings=small)


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class Stops:
    """Hears of every update, and stops the tour when one of them says what it waits for."""

    def __init__(self, until: str = "") -> None:
        self.until = until
        self.updates: list[ProgressUpdate] = []

    def __call__(self, update: ProgressUpdate) -> None:
        self.updates.append(update)
        if self.until and self.until in f"{update.stage}: {update.message}":
            raise KeyboardInterrupt

    @property
    def steps(self) -> list[tuple[str, int]]:
        """The steps that were taken: the spec and the number."""
        told = [(m.stage, m.message.split()) for m in self.updates if "loss" in m.message]
        return [(name, int(words[1])) for name, words in told]


def weights(folder: TourFolder, spec: ModelSpec) -> bytes:
    return (folder.bundle(spec.name) / "model.safetensors").read_bytes()


def whole(folder: TourFolder, tiny: TourPlan, watch: Stops) -> list[str]:
    folder.begin()
    return list(tour(folder, tiny, watch))
