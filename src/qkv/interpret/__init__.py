"""Looking inside: the worked example and worksheets; traces, reasons and pages of any model."""

from typing import TYPE_CHECKING

from qkv.lazy import lazy_attributes

if TYPE_CHECKING:
    from qkv.interpret.attention_walk import check_answers, walk
    from qkv.interpret.examples import POEM, example, notes_worksheet
    from qkv.interpret.exercise import (
        all_blanks,
        choose_blanks,
        exercise_toml,
        random_worksheet,
    )
    from qkv.interpret.glass_box import GlassBox
    from qkv.interpret.head_walk import HeadLocation, head_value_names, locate_head, walk_head
    from qkv.interpret.lemma import check_image_path, lemma_text, measure_lemma, plot_lemma
    from qkv.interpret.patching import PatchSweep
    from qkv.interpret.step import Walk
    from qkv.interpret.worksheet import TEMPLATE, Worksheet, read_worksheet

__all__ = [
    "POEM",
    "TEMPLATE",
    "GlassBox",
    "HeadLocation",
    "PatchSweep",
    "Walk",
    "Worksheet",
    "all_blanks",
    "check_answers",
    "check_image_path",
    "choose_blanks",
    "example",
    "exercise_toml",
    "head_value_names",
    "lemma_text",
    "locate_head",
    "measure_lemma",
    "notes_worksheet",
    "plot_lemma",
    "random_worksheet",
    "read_worksheet",
    "walk",
    "walk_head",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "qkv.interpret.examples": (
            "POEM",
            "example",
            "notes_worksheet",
        ),
        "qkv.interpret.exercise": (
            "all_blanks",
            "choose_blanks",
            "exercise_toml",
            "random_worksheet",
        ),
        "qkv.interpret.glass_box": ("GlassBox",),
        "qkv.interpret.head_walk": (
            "HeadLocation",
            "head_value_names",
            "locate_head",
            "walk_head",
        ),
        "qkv.interpret.patching": ("PatchSweep",),
        "qkv.interpret.step": ("Walk",),
        "qkv.interpret.attention_walk": (
            "check_answers",
            "walk",
        ),
        "qkv.interpret.worksheet": (
            "TEMPLATE",
            "Worksheet",
            "read_worksheet",
        ),
        "qkv.interpret.lemma": (
            "check_image_path",
            "lemma_text",
            "measure_lemma",
            "plot_lemma",
        ),
    },
)
