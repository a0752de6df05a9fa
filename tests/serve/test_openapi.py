"""Requests made from the documentation itself, right and wrong ones: no answer is a surprise."""

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case, GenerationMode
from tests.serve.running_server import RunningServer, serving

EXAMPLES = 60


@pytest.fixture(scope="module")
def fuzzed(bundles: dict[str, Path]) -> RunningServer:
    options = tuple(f"{name}={path}" for name, path in bundles.items())
    with serving(*options) as running:
        yield running
        assert running.is_ready()
        assert running.metrics()["qkv_engine_restarts"] == 0


@pytest.fixture(scope="module")
def documented(fuzzed: RunningServer) -> schemathesis.BaseSchema:
    config = schemathesis.Config.from_dict({"generation": {"allow-x00": True}})
    return schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json", config=config)


schema = schemathesis.pytest.from_fixture("documented")


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_documented(case: Case) -> None:
    response = case.call()
    assert response.status_code < 500, response.text
    case.validate_response(
        response,
        checks=[
            schemathesis.checks.not_a_server_error,
            schemathesis.checks.load_all_checks and schemathesis.checks.not_a_server_error,
        ],
    )


def test_every_route_is_documented_with_an_example(server: RunningServer) -> None:
    document = server.get("/openapi.json")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("summary"), (method, path)
            assert operation.get("tags"), (method, path)
