"""The command line: `qkv COMMAND`. Nothing heavy is imported until a command needs it."""

import sys

# Older versions fail on an import below, with a message that does not name the cause.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write(
        "qkv: Python 3.11 or later is needed, and this is "
        f"{'.'.join(map(str, sys.version_info[:3]))}; make an environment with a newer one, as in: "
        "python3.11 -m venv .venv\n"
    )
    sys.exit(2)

from qkv.cli.app import main

__all__ = ["main"]
