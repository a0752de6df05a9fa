"""`qkv doctor`: what this machine has, how fast it is, and what is missing for what."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.progress import say, show

if TYPE_CHECKING:
    from qkv.cli.examination import Examination
    from qkv.machine import Room


def doctor(
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Look at this machine: what it has, how fast it is, and what is missing for what.

    Speeds are measured for about two seconds. The exit code is 1 if something that qkv needs is
    broken; what is only missing for some files or tools is told with the command to get it.

    \b
    Examples:
      qkv doctor
      qkv doctor --json
    """
    from dataclasses import asdict
    from json import dumps

    from qkv.cli.diagnosis import diagnose
    from qkv.cli.examination import examine

    say("looking, and measuring for about two seconds")
    found = examine()
    told = diagnose(found)
    if json:
        typer.echo(dumps({"ok": not told.broken, **asdict(found), **asdict(told)}))
    else:
        show([*_machine(found), *_software(found), *_speeds(found)])
        typer.echo("")
        for name, lines in asdict(told).items():
            for line in lines:
                typer.echo(f"{name.removesuffix('s')}: {line}")
        typer.echo(told.verdict)
    return 1 if told.broken else 0


def _machine(found: "Examination") -> list[tuple[str, str]]:
    cpu, cores = found.cpu, found.cores
    physical = "" if cpu.physical is None else f", {cpu.physical} physical"
    share = "" if cores.share is None else f", {cores.share:g} by the container's share"
    features = " · ".join(f"{name} {'yes' if has else 'no'}" for name, has in cpu.features.items())
    return [
        ("CPU", f"{cpu.name} ({cpu.architecture})"),
        ("cores", f"{cores.there}{physical}; usable {cores.usable}{share}"),
        ("instructions", features),
        ("memory", _room(found.memory)),
        ("cache", f"{found.cache} (QKV_CACHE); disk {_room(found.cache_disk)}"),
        ("terminal", f"{found.encoding}, {found.columns} columns"),
    ]


def _software(found: "Examination") -> list[tuple[str, str]]:
    rows = [("Python", f"{found.python} ({found.executable})"), ("qkv", found.qkv)]
    if found.torch:
        torch = found.torch
        parts = " · ".join(
            f"{name} {'yes' if has else 'no'}"
            for name, has in (("MKL", torch.mkl), ("oneDNN", torch.onednn))
        )
        rows.append(("torch", f"{torch.version}, {torch.threads} threads · {parts}"))
        rows.append(("C++ compiler", found.compiler or "none; only --compile needs one"))
        rows.append(("other devices", ", ".join(torch.devices) or "none; all of qkv runs on a CPU"))
    return [*rows, *_extras(found)]


def _extras(found: "Examination") -> list[tuple[str, str]]:
    from qkv.machine.packages import EXTRAS, WORKSHOP

    rows = []
    for title, group in (("extras", EXTRAS), ("to work on qkv", WORKSHOP)):
        told = []
        for extra, purpose in group.items():
            members = [p for p in found.packages if p.extra == extra]
            there = sum(p.trouble is None for p in members)
            whole = bool(members) and there == len(members)
            has = "yes" if whole else f"{there} of {len(members)} packages"
            told.append(f"{extra} ({purpose}) {has}")
        rows.append((title, " · ".join(told)))
    return rows


def _speeds(found: "Examination") -> list[tuple[str, str]]:
    speed = found.speed
    if speed is None:
        return [("speed", "not measured")]
    whole = "only with --compile"
    if speed.int8_gops is not None:
        whole = f"{speed.int8_gops:,.0f} GOP/s, as --int8 multiplies"
    return [
        ("float32", f"{speed.float32_gflops:,.0f} GFLOP/s"),
        ("int8", whole),
        ("reading", f"{speed.reading_gb:,.1f} GB/s, which bounds how fast tokens are written"),
    ]


def _room(room: "Room") -> str:
    from qkv.cli.diagnosis import as_bytes

    if room.total is None:
        return "not told by this system"
    free = "" if room.free is None else f", {as_bytes(room.free)} free"
    return f"{as_bytes(room.total)}{free}"
