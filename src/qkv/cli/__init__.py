"""The command line: `qkv COMMAND`. Nothing heavy is imported until a command needs it."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  an older one fails below, and does not say why
    sys.stderr.write(
        "qkv: Python 3.11 or later is needed, and this is "
        f"{'.'.join(map(str, sys.version_info[:3]))}; make an environment with a newer one, as in: "
        "python3.11 -m venv .venv\n"
    )
    sys.exit(2)

from qkv.cli.app import main

__all__ = ["main"]
