"""`qkv explain --patch`, `--ablate`, `--steer` and `--patch-sweep`: activations changed by tensors.

An activation is written NAME or NAME@POSITIONS, as in decoder.3@2,4-6 or decoder.3@-1.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from qkv.cli.progress import TextProgress, print_stderr
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.cli.explain_model import ExplainArgs
    from qkv.interpret import GlassBox, PatchSweep
    from qkv.interpret.trace import Edit

SPAN = re.compile(r"(-?\d+)(?:-(\d+))?")


def patches_of(box: "GlassBox", args: "ExplainArgs") -> list["Edit"]:
    """The edits that --patch, --ablate and --steer name, in this order."""
    edits: list[Edit] = []
    if args.patch:
        edits += _patches(box, args)
    elif args.patch_from is not None:
        raise UsageError("--patch-from is a text to take activations from; add --patch NAME")
    edits += [_ablation(value) for value in args.ablate]
    edits += [_steering(value) for value in args.steer]
    return edits


def _patches(box: "GlassBox", args: "ExplainArgs") -> list["Edit"]:
    """The edits for --patch NAME[@POSITIONS], from a trace of --patch-from."""
    from qkv.interpret.trace import PatchActivation
    from qkv.model import Translator

    if args.patch_from is None:
        raise UsageError(
            f"--patch {args.patch[0]} needs the text to take it from; add --patch-from TEXT"
        )
    target = args.target
    if isinstance(box.model, Translator) and target is None:
        target = box.own_translation(args.text)
    parsed = [_parse_activation("--patch", value) for value in args.patch]
    names = [box.graph.resolve(name) for name, _ in parsed]
    source = box.trace(args.patch_from, target=target, keep=names)
    return [PatchActivation(name, source, positions=positions) for name, positions in parsed]


def _ablation(value: str) -> "Edit":
    """The edit for --ablate NAME[@POSITIONS][=mean]."""
    from qkv.interpret.trace import MeanAblate, ZeroAblate

    activation, equals, kind = value.partition("=")
    name, positions = _parse_activation("--ablate", activation)
    if not equals or kind == "zero":
        return ZeroAblate(name, positions=positions)
    if kind == "mean":
        return MeanAblate(name, positions=positions)
    raise UsageError(f"--ablate {value} should end with =zero or =mean")


def _steering(value: str) -> "Edit":
    """The edit for --steer NAME[@POSITIONS]=[STRENGTH*]FILE."""
    from qkv.interpret.trace import AddSteeringVector

    activation, equals, vector = value.partition("=")
    if not equals or not vector:
        raise UsageError(
            f"--steer {value} should be NAME=FILE or NAME@POSITIONS=STRENGTH*FILE, as in "
            "decoder.3=2.5*love.npy"
        )
    name, positions = _parse_activation("--steer", activation)
    strength = 1.0
    number, star, file = vector.partition("*")
    if star:
        try:
            strength = float(number)
        except ValueError:
            raise UsageError(f'--steer {value}: "{number}" is not a number') from None
        vector = file
    return AddSteeringVector(name, _read_vector(Path(vector)), strength, positions=positions)


def _read_vector(path: Path) -> Any:
    """The numbers in a .npy file."""
    import numpy as np

    from qkv.files import os_error_reason

    try:
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.float32)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {os_error_reason(error)}") from error
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path} is not a .npy file of numbers") from error


def _parse_activation(flag: str, value: str) -> tuple[str, tuple[int, ...] | None]:
    """The name, and the positions after an @ if there are any."""
    name, at, spans = value.partition("@")
    if not at:
        return name, None
    positions: list[int] = []
    for span in spans.split(","):
        match = SPAN.fullmatch(span.strip())
        if match is None:
            raise UsageError(
                f"{flag} {value}: positions are written as 2 or 2,4-6 or -1, counted from 0"
            )
        first = int(match[1])
        last = int(match[2] or first)
        if last < first or (match[2] and first < 0):
            raise UsageError(f"{flag} {value}: {span.strip()} is an empty span")
        positions += range(first, last + 1)
    return name, tuple(positions)


def explain_sweep(box: "GlassBox", args: "ExplainArgs") -> int:
    """Print the sweep of --patch-sweep, or draw it with -o."""
    from json import dumps

    from qkv.cli.explain_model import PICTURE_SUFFIXES

    assert args.patch_sweep is not None
    if args.patch_from is None:
        raise UsageError("--patch-sweep needs the clean text; add --patch-from TEXT")
    if args.patch or args.ablate or args.steer or args.head_off or args.replace:
        raise UsageError("--patch-sweep makes its own edits; leave the others out")
    if args.output is not None and args.suffix not in PICTURE_SUFFIXES:
        raise UsageError(
            f"--patch-sweep draws a picture; end {args.output.name} with "
            f"{', '.join(PICTURE_SUFFIXES)}, or print the numbers with --json"
        )
    sweep = _run_sweep(box, args, args.patch_from)
    if args.output is not None:
        sweep.draw(args.output)
        print_stderr(f"wrote {args.output}")
    elif args.format == "json":
        typer.echo(dumps(sweep.json(), ensure_ascii=False))
    else:
        typer.echo("\n".join(sweep.lines(args.width)))
    return 0


def _run_sweep(box: "GlassBox", args: "ExplainArgs", clean: str) -> "PatchSweep":
    progress: TextProgress | None = None

    def show(done: int, total: int) -> None:
        nonlocal progress
        if progress is None:
            progress = TextProgress(total, "patches")
        progress(done)

    sweep = box.patch_sweep(
        clean,
        args.text,
        answer=args.token or args.label,
        against=args.against,
        part=args.patch_sweep,  # type: ignore[arg-type]  # an unknown one is a UsageError
        side=args.side or None,
        target=args.target,
        progress=show,
    )
    if progress is not None:
        progress.end()
    return sweep
