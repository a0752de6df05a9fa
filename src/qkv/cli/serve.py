"""`qkv serve DIR…`: models over HTTP, for the clients people already have."""

import os
from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import Threads
from qkv.cli.progress import print_stderr
from qkv.errors import UsageError


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]DIR…", help="Bundles or public checkpoints, each with a name."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address; other than loopback needs a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.")] = 8000,
    key_file: Annotated[
        Path | None, typer.Option(help="API keys, one NAME KEY a line; also QKV_API_KEY.")
    ] = None,
    admin_key_file: Annotated[
        Path | None, typer.Option(help="The key that may load and unload models.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name of this server (Host header).")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web page that may call, as https://example.org.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Quantize weights to int8.")] = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="Use kernels compiled for this machine.")
    ] = False,
    threads: Threads = None,
    cache_tokens: Annotated[
        int, typer.Option(help="Positions that running completions may need together.", min=256)
    ] = 16_384,
    prefix_cache_tokens: Annotated[
        int, typer.Option(help="Tokens of recent prompts kept for reuse.", min=0)
    ] = 8_192,
    max_requests: Annotated[
        int, typer.Option(help="Requests running and waiting; more get 429.", min=1)
    ] = 256,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False,
) -> int:
    """Serve models over HTTP: OpenAI's routes and ours, with explanations.

    \b
    Examples:
      qkv serve runs/stories
      qkv serve minilm=models/all-MiniLM-L6-v2 reviews=runs/reviews --port 8080 --int8
      qkv serve runs/stories --host 0.0.0.0 --key-file keys.txt
    """
    try:
        from qkv.serve import Limits, ModelSource, Settings, read_keys, run_server
    except ModuleNotFoundError as error:
        raise UsageError(
            f"serving needs the package {error.name}; install it with: pip install 'qkv[serve]'"
        ) from error
    keys = {} if key_file is None else read_keys(key_file)
    if key_file is None and os.environ.get("QKV_API_KEY"):
        keys = {"env": os.environ["QKV_API_KEY"]}
    admin_key = None
    if admin_key_file is not None:
        admin_key = next(iter(read_keys(admin_key_file).values()))
    settings = Settings(
        models=tuple(map(ModelSource.parse, models)),
        host=host,
        port=port,
        keys=keys,
        admin_key=admin_key,
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
        allowed_origins=tuple(allow_origin or ()),
        int8=int8,
        compile=compile,
        threads=threads,
        cache_tokens=cache_tokens,
        prefix_cache_tokens=prefix_cache_tokens,
        limits=Limits(requests=max_requests),
    )

    def on_start(address: str) -> None:
        names = ", ".join(model.name for model in settings.models)
        print_stderr(f"serving {names} at {address} (Ctrl-C ends it)")

    return run_server(settings, on_start, log_requests=not quiet)
