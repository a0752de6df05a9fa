"""Kills `qkv embed` with SIGKILL at random moments, resumes it, and compares the files."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from tests.engine.embed.tiny_encoders import encoder, sentences, tokenizer

from qkv.bundle import Bundle
from qkv.cli.app import main as qkv_main
from qkv.engine.embed import embedder as stream

TEXTS, KILLS = 2_000, 5
stream.BATCH_TEXTS = 64  # portions short enough to be killed in


def main(place: Path) -> None:
    torch.set_num_threads(1)
    Bundle(encoder(), tokenizer(marked=True)).save(place / "model")
    (place / "texts.txt").write_text("\n".join(sentences(TEXTS)) + "\n", "utf-8")
    begin = time.monotonic()
    run(place, "whole.npy", after=None)
    lasts = time.monotonic() - begin
    chance, kills, rows = random.Random(1), 0, list[int]()
    broken, journal, different = place / "broken.npy", place / "broken.npy.journal", 0
    while kills < KILLS or not broken.exists():
        after = chance.uniform(0.1, 0.6) * lasts if kills < KILLS else None
        if run(place, broken.name, after):
            kills += 1
            rows.append(reached(journal))
        if broken.exists() and not journal.exists():
            different += broken.read_bytes() != (place / "whole.npy").read_bytes()
            if kills < KILLS:
                broken.unlink()  # once more
    left = [path.name for path in place.glob("broken.npy.*")]
    said = {"kills": kills, "rows": rows, "texts": TEXTS, "different": different, "left": left}
    print(json.dumps(said))


def run(place: Path, name: str, after: float | None) -> bool:
    """Whether the program was killed after so long, before it ended."""
    arguments = ["embed", place / "model", "--file", place / "texts.txt", "-o", place / name]
    child = os.fork()
    if child == 0:
        work([*map(str, arguments), "--resume"])
    until = time.monotonic() + (300 if after is None else after)
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status != 0:
                raise SystemExit(f"it ended with {status}")
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def work(arguments: list[str]) -> None:
    sys.argv = ["qkv", *arguments]
    try:
        qkv_main()
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    finally:
        os._exit(1)


def reached(journal: Path) -> int:
    return json.loads(journal.read_text())["rows"] if journal.exists() else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
