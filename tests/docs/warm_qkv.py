"""The program `qkv`, kept warm: each command is a fork of a process that has imported everything.

A page of the docs has many commands, and most of the time of each would be the import of torch. A
command still has its own process, arguments, environment, folder and standard streams.

    python warm_qkv.py SOCKET     serves until it is ended
"""

import array
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = """\
#!/bin/sh
# A server is ended by a signal, which would only reach the process that waits for the fork.
if [ "$1" = serve ]; then exec '{python}' -m qkv "$@"; fi
exec '{python}' -SE '{client}' "$@"
"""
CLIENT = """\
import array, json, os, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
line.connect({socket!r})
asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
streams = array.array("i", [0, 1, 2])
told = len(asked).to_bytes(4, "big")
line.sendmsg([told], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
line.sendall(asked)
code = line.recv(1)
sys.exit(code[0] if code else "qkv died")
"""


@contextmanager
def warm(place: Path) -> Iterator[Path]:
    """A folder with a program `qkv` to put on the path."""
    client, program = place / "ask.py", place / "qkv"
    program.write_text(PROGRAM.format(python=sys.executable, client=client), "utf-8")
    program.chmod(0o755)
    with tempfile.TemporaryDirectory() as short:  # the name of a socket may not be long
        listening = str(Path(short) / "socket")
        client.write_text(CLIENT.format(socket=listening), "utf-8")
        server = subprocess.Popen(
            [sys.executable, __file__, listening],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
        )  # fmt: skip
        with server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == b"ready\n"
                yield place
            finally:
                server.kill()


def serve(place: str) -> None:
    """Import what commands import, and answer each with a fork."""
    import torch  # noqa: F401

    import qkv.cli.app
    import qkv.engine.engine
    import qkv.interpret.glass_box
    import qkv.report
    import qkv.training.run  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)
        while True:
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                answer(line)
            line.close()


def answer(line: socket.socket) -> None:
    """Run one command as if it had been started by the shell, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    streams = array.array("i")
    told, (passed, *_), *_ = line.recvmsg(4, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(passed[2])
    asked = b""
    while len(asked) < int.from_bytes(told, "big"):
        asked += line.recv(1 << 16)
    arguments, folder, environment = json.loads(asked)
    for standard, given in enumerate(streams):
        os.dup2(given, standard)
        os.close(given)
    sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["qkv", *arguments]
    line.sendall(bytes([run()]))
    os._exit(0)


def run() -> int:
    import traceback

    from qkv.cli.app import main

    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 1
    return code


if __name__ == "__main__":
    serve(sys.argv[1])
