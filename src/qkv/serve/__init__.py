"""The HTTP server: every job of the toolkit for any client, and every answer explained.

Two processes: the front speaks HTTP and never imports torch; the engine process owns the models.
They exchange the messages of `link` over a socket pair.
"""

from typing import TYPE_CHECKING

from qkv.lazy import lazy_attributes

if TYPE_CHECKING:
    from qkv.serve.app import create_app
    from qkv.serve.live_checks import LiveServer, check_server
    from qkv.serve.server import run_server
    from qkv.serve.settings import Deadlines, Limits, ModelSource, Settings, read_keys

__all__ = [
    "Deadlines",
    "Limits",
    "LiveServer",
    "ModelSource",
    "Settings",
    "check_server",
    "create_app",
    "read_keys",
    "run_server",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "qkv.serve.app": ("create_app",),
        "qkv.serve.live_checks": ("LiveServer", "check_server"),
        "qkv.serve.server": ("run_server",),
        "qkv.serve.settings": ("Deadlines", "Limits", "ModelSource", "Settings", "read_keys"),
    },
)
