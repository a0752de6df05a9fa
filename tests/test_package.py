"""The package's front door: what it exports is there, documented and typed, each with one home."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest

import qkv
import qkv.engine.generate

NAMES = [name for name in qkv.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", qkv.__all__)
def test_every_exported_name_exists(name: str) -> None:
    assert getattr(qkv, name) is not None


def test_every_lazy_name_is_exported() -> None:
    lazy = {name for names in qkv._HOME.values() for name in names}
    assert lazy | {"__version__"} == set(qkv.__all__) == set(dir(qkv))
    assert len(qkv.__all__) == len(set(qkv.__all__))


@pytest.mark.parametrize("name", NAMES)
def test_every_exported_name_has_a_docstring(name: str) -> None:
    thing = getattr(qkv, name)
    assert (thing if callable(thing) else type(thing)).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        _ = qkv.atend  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["train", "check", "explain"])
def test_no_package_has_the_name_of_a_function(name: str) -> None:
    """Importing a package would put it in the place of the function."""
    package = Path(qkv.__file__).parent
    assert not (package / name).exists()
    assert not (package / f"{name}.py").exists()


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, qkv; dir(qkv); assert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_runs_as_a_module() -> None:
    ran = subprocess.run([sys.executable, "-m", "qkv", "--version"], capture_output=True, text=True)
    assert ran.stdout.strip() == f"qkv {qkv.__version__}"


def test_the_bare_mathematics_is_one_call() -> None:
    import torch

    q, k, v = torch.randn(3, 2, 5, 7, 11)
    out = qkv.attend(q, k, v, mask=qkv.Mask.causal())
    assert torch.allclose(out, qkv.reference(q, k, v, qkv.Mask.causal()).output, atol=1e-6)


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every exported function, and every public method of ours of an exported class."""
    exported = {f"qkv.{name}": getattr(qkv, name) for name in NAMES}
    for name in qkv.engine.generate.__all__:
        exported[f"qkv.engine.generate.{name}"] = getattr(qkv.engine.generate, name)
    for name, thing in exported.items():
        if inspect.isfunction(thing):
            yield name, thing
        if not inspect.isclass(thing):
            continue
        for attribute, value in inspect.getmembers(thing):
            ours = (getattr(value, "__module__", None) or "").startswith("qkv.")
            public = not attribute.startswith("_") or attribute == "__init__"
            if ours and public and (inspect.isfunction(value) or inspect.ismethod(value)):
                yield f"{name}.{attribute}", value


FUNCTIONS = dict(public_functions())


def test_the_walk_meets_the_methods_people_call() -> None:
    for name in ("embed", "classify", "translate", "generate", "trace", "why", "cluster"):
        assert f"qkv.GlassBox.{name}" in FUNCTIONS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_argument_has_a_name_and_a_type(name: str) -> None:
    for parameter in inspect.signature(FUNCTIONS[name]).parameters.values():
        if parameter.name in ("self", "cls") or name.endswith("__init__"):
            continue
        assert parameter.annotation not in (inspect.Parameter.empty, Any, "Any"), parameter
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # only as a list of known names
            (options,) = get_args(parameter.annotation)
            assert is_typeddict(options)


def test_options_are_the_arguments_of_a_request() -> None:
    """`Options` repeats the signature of `make_request`, and so does `Engine.generate`."""
    from qkv.engine.generate import Options, make_request

    expected = inspect.signature(make_request).parameters
    assert set(Options.__annotations__) < set(expected)
    for name, kind in get_type_hints(Options).items():
        assert kind == get_type_hints(make_request)[name]
    for method in (qkv.Engine.generate, qkv.Engine.generate_many):
        parameters = inspect.signature(method).parameters
        for name in Options.__annotations__:
            assert parameters[name].default == expected[name].default
