"""Library errors name Python arguments, the command line spells them as flags."""

from qkv.cli.cluster import cluster
from qkv.cli.flags import flags_of, spell_flags
from qkv.cli.generate import generate

FLAGS = flags_of(generate)


def test_arguments_of_the_command_become_flags() -> None:
    assert spell_flags("top_k=0 must be 1 or more", FLAGS) == "--top-k 0 must be 1 or more"
    assert spell_flags('pass truncate="left"', FLAGS) == "pass --truncate left"
    assert spell_flags("kernels (compile=True); x", FLAGS) == "kernels (--compile); x"


def test_other_names_stay_as_they_are() -> None:
    assert spell_flags("heads=4 must divide width=250", FLAGS) == "heads=4 must divide width=250"


def test_an_option_without_a_long_spelling_keeps_its_short_one() -> None:
    assert spell_flags("k=13 clusters", flags_of(cluster)) == "-k 13 clusters"


def test_quotes_around_a_value_are_dropped() -> None:
    assert spell_flags("leave text='my body' out", flags_of(cluster)) == "leave --text my body out"
