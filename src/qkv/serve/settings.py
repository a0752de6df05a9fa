"""Everything the server can be told: its models, address, keys, limits and deadlines."""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from qkv.errors import UsageError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MIN_KEY_LENGTH = 8


@dataclass(frozen=True)
class ModelSource:
    """A model by the name that clients use."""

    name: str
    path: str

    @classmethod
    def parse(cls, argument: str) -> "ModelSource":
        """NAME=DIR, or DIR alone, whose last part is the name then."""
        name, equals, path = argument.partition("=")
        if not equals or not name or "/" in name or os.sep in name:
            path = argument
            name = Path(argument).resolve().name.removesuffix(".gguf")
        if not path:
            raise UsageError(f'"{argument}" names no directory; write NAME=DIR')
        if not Path(path).exists():
            raise UsageError(f"{path} does not exist; name a bundle or a public checkpoint")
        return cls(name, path)


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may ask for."""

    body_bytes: int = 4 << 20
    json_depth: int = 32
    requests: int = 256  # running and waiting completions and other answers, all in all
    queue_tokens: int = 262_144  # prompt tokens of requests that have not been answered yet
    texts: int = 2048  # in one request
    completions: int = 16  # n, and the prompts of one request times n
    stop_strings: int = 16
    explanations: int = 8  # at the same time


@dataclass(frozen=True)
class Deadlines:
    """In seconds, each absolute: a client that sends a byte now and then gains nothing."""

    first_byte: float = 10.0
    headers: float = 10.0
    body: float = 30.0
    write: float = 30.0  # for a client to take what was written
    drain: float = 30.0  # for open answers after SIGTERM
    idle: float = 1.0  # the engine, silent beyond its allowance and using no processor
    stuck: float = 30.0  # the engine, silent beyond its allowance and busy


@dataclass(frozen=True)
class Settings:
    """One server.

    keys: by name; without any, only a loopback address may be served.
    allowed_hosts: of the Host header, besides the address itself.
    allowed_origins: exact origins of browsers that may call; none by default.
    threads: of the engine; None follows the load of the machine.
    """

    models: tuple[ModelSource, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    keys: dict[str, str] = field(default_factory=dict)
    admin_key: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    int8: bool = False
    compile: bool = False
    threads: int | None = None
    cache_tokens: int = 16_384
    prefix_cache_tokens: int = 8_192
    limits: Limits = Limits()
    deadlines: Deadlines = Deadlines()

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("name at least one model to serve")
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f'two models are called "{name}"; name them with NAME=DIR')
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port {self.port} is not between 0 and 65535")
        if self.host not in LOOPBACK and not self.keys:
            raise UsageError(
                f"serving {self.host} to other machines needs a key: pass --key-file FILE, or "
                "leave --host out to serve this machine only"
            )
        for name, key in [*self.keys.items(), ("admin", self.admin_key or "-" * MIN_KEY_LENGTH)]:
            if len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable():
                raise UsageError(
                    f'the key "{name}" needs at least {MIN_KEY_LENGTH} visible ASCII characters'
                )


def read_keys(path: Path) -> dict[str, str]:
    """The keys in a file: one `NAME KEY` or KEY a line, # starts a comment."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077 and os.name == "posix":
            raise UsageError(f"{path} can be read by others; run: chmod 600 {path}")
        lines = path.read_text("utf-8").split("\n")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2:
            raise UsageError(f"{path} line {number}: expected NAME KEY, found {len(words)} words")
        name = words[0] if len(words) == 2 else f"key{number}"
        if name in keys:
            raise UsageError(f'{path} line {number}: the name "{name}" is used twice')
        keys[name] = words[-1]
    if not keys:
        raise UsageError(f"{path} holds no key; write one a line")
    return keys
