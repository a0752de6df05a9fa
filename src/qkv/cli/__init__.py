"""The command line: `qkv COMMAND`. Nothing heavy is imported until a command needs it."""

from qkv.cli.app import main

__all__ = ["main"]
