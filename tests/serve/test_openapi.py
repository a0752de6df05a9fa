"""Requests made from the documentation itself, right and wrong ones: no answer is a surprise."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.serve.running_server import RunningServer, serving

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@pytest.mark.slow
def test_schemathesis_finds_no_server_error_and_nothing_undocumented(
    bundles: dict[str, Path], tmp_path: Path
) -> None:
    options = tuple(f"{name}={path}" for name, path in bundles.items())
    with serving(*options) as server:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
        command += ["--mode", "all", "--generation-allow-x00", "true", "--max-examples", "10"]
        command += ["--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color"]
        command += ["--checks", ",".join(CHECKS), "--suppress-health-check", "all"]
        run = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False
        )
        assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
        assert server.is_ready()
        assert server.metrics()["qkv_engine_restarts"] == 0


def test_every_route_is_documented(server: RunningServer) -> None:
    document = server.get("/openapi.json")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("summary"), (method, path)
            assert operation.get("tags"), (method, path)
