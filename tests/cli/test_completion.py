"""The tabulator: commands, options and values, at once and without torch, in three shells."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from qkv.cli import options as names

QKV = Path(sys.executable).with_name("qkv")
PATH = f"{QKV.parent}{os.pathsep}{os.environ['PATH']}"


def completions(line: str) -> list[str]:
    """What bash is offered for the last word of the line, which may be empty."""
    variables = {"_QKV_COMPLETE": "complete_bash", "COMP_WORDS": line}
    position = {"COMP_CWORD": str(len(line.split(" ")) - 1)}
    process = subprocess.run(
        [QKV], capture_output=True, text=True, env={**os.environ, **variables, **position}
    )
    assert process.stderr == ""
    return process.stdout.split()


COMPLETIONS = {
    "qkv tra": ["train", "translate"],
    "qkv cha": ["chat"],
    "qkv explain text --patch-sweep f": ["feed_forward"],
    "qkv train ": list(names.JOBS),
    "qkv train c": ["classify"],
    "qkv plan language --si": ["--size"],
    "qkv plan language --size ": list(names.SIZES),
    "qkv train language --preset gpt": ["gpt2"],
    "qkv train classify --preset classify-": [
        "classify-tiny", "classify-small", "classify-medium",
    ],
    "qkv train language --tokenizer b": ["bpe", "bytes"],
    "qkv train language --optimizer ": ["muon", "adamw"],
    "qkv train language --optimiser ": ["muon", "adamw"],
    "qkv train language --device c": ["cpu", "cuda"],
    "qkv data ": list(names.CORPORA),
    "qkv embed somewhere --long ": ["error", "truncate", "average"],
    "qkv translate somewhere --long ": ["error", "sentences"],
    "qkv generate somewhere --truncate ": ["left"],
    "qkv cluster somewhere a.txt --method h": ["hdbscan"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("line", COMPLETIONS)
def test_bash_is_offered_what_fits(line: str) -> None:
    assert completions(line) == COMPLETIONS[line]


def test_no_name_fits_a_file_so_the_shell_offers_its_own() -> None:
    assert completions("qkv train language some") == []


def test_a_real_bash_completes_a_job() -> None:
    script = """
    source <(_QKV_COMPLETE=source_bash qkv)
    COMP_WORDS=(qkv train m) COMP_CWORD=2
    _qkv_completion qkv
    echo "${COMPREPLY[@]}"
    """
    process = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": PATH}
    )
    assert (process.stdout, process.stderr) == ("masked\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(shell: str) -> None:
    variables = {
        "_QKV_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "qkv train m",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    process = subprocess.run([QKV], capture_output=True, text=True, env={**os.environ, **variables})
    assert "masked" in process.stdout
    assert "language" not in process.stdout


def test_it_takes_no_time_and_no_torch() -> None:
    """Time on a core, which others who wait for the same cores do not lengthen."""

    def cpu_seconds() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def once() -> float:
        before = cpu_seconds()
        completions("qkv train language --preset ")
        return cpu_seconds() - before

    assert min(once() for _ in range(5)) < 0.4
    code = "import sys, qkv.cli.app; print({'torch', 'numpy'} & sys.modules.keys())"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout == "set()\n"


def test_the_names_are_those_of_what_they_name() -> None:
    from qkv.data.built_in import BUILT_IN
    from qkv.device import resolve_device
    from qkv.engine.embed import LONG_TEXT_POLICIES
    from qkv.engine.translate.segments import Long
    from qkv.interpret.examples import EXAMPLES
    from qkv.model import presets
    from qkv.model.presets import SIZES
    from qkv.text import TOKENIZER_KINDS
    from qkv.training.tasks import Task

    assert tuple(Task.variants()) == names.JOBS
    assert tuple(BUILT_IN) == names.CORPORA
    assert tuple(SIZES) == names.SIZES
    assert tuple(presets()) == names.PRESETS
    assert set(TOKENIZER_KINDS) == set(names.TOKENIZERS)
    assert LONG_TEXT_POLICIES == names.LONG
    assert Long.__args__ == names.LONG_TRANSLATIONS
    assert tuple(EXAMPLES) == names.EXAMPLES
    assert resolve_device(names.DEVICES[0])


def test_help_lists_names_as_people_do() -> None:
    assert names.join_or(("a", "b", "c")) == "a, b or c"
    assert names.join_or(("a", "b")) == "a or b"
