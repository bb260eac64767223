"""Pytest configuration: hypothesis profiles, golden files, seeds, what the machine must have."""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from weft.blocks.kernels.quantized import Packer, Product

GOLDEN = Path(__file__).parent / "golden"

settings.register_profile(
    "weft",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    max_examples=50,
    print_blob=True,
)
settings.register_profile("thorough", settings.get_profile("weft"), max_examples=1000)
settings.load_profile("weft")

# Everything that is imported for the tests lives until the end of the session.
gc.disable()

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores: one torch thread for each worker and its subprocesses.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


# Tests do not measure kernels: the fastest kernel depends on the machine and its load.
os.environ.setdefault("WEFT_PRODUCT", "torch")
os.environ.setdefault("WEFT_ATTENTION", "fused")
# Code compiled by tests goes to torch's default folder, not to the user's cache.
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the files in tests/golden instead of comparing with them",
    )


def pytest_collection_finish() -> None:
    """Freeze all objects that exist after collection, which live until the end of the session."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with `tests/golden/NAME`, or rewrites it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.is_file(), f"no golden file {name}; `make golden` writes it"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session")
def count_calls() -> Callable[[Callable[[], object]], int]:
    """Return a function that counts the function calls of some work, Python's and C's.

    Tests bound work by it instead of by seconds: the count does not depend on the machine.
    """

    def counted(work: Callable[[], object]) -> int:
        count = 0

        def hook(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(hook)
        try:
            work()
        finally:
            sys.setprofile(before)
        return count

    return counted


@pytest.fixture(scope="session")
def count_lines() -> Callable[[Callable[[], object]], int]:
    """Return a function that counts the lines of Python that some work runs, loops included."""

    def counted(work: Callable[[], object]) -> int:
        count = 0

        def hook(_frame: object, event: str, _argument: object) -> object:
            nonlocal count
            count += event == "line"
            return hook

        before = sys.gettrace()
        sys.settrace(hook)  # type: ignore[arg-type]
        try:
            work()
        finally:
            sys.settrace(before)
        return count

    return counted


@pytest.fixture
def own_compiler() -> Iterator[None]:
    """Restore torch's settings and reset its compiler; a fallback to eager mode is an error."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.fx.experimental._config")
    torch.compiler.reset()
    with (
        torch.fx.experimental._config.patch(use_duck_shape=True),
        torch._dynamo.config.patch(fail_on_recompile_limit_hit=True),
    ):
        yield
    torch.compiler.reset()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Ignore warnings of torch's compiler about its own code."""
    if "own_compiler" in getattr(item, "fixturenames", ()):
        for warning in (
            r"ignore:.*torch\.jit\.:DeprecationWarning",
            r"ignore:The \.grad attribute:UserWarning",
            r"ignore:<class 'torch\.autograd\.function\.Function'> should not:DeprecationWarning",
        ):
            item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Start every test from the same random state, without importing torch for it."""
    random.seed(0)
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_initialized():
        torch.manual_seed(0)
    else:  # torch would record the stack for a GPU that is never used
        torch.default_generator.manual_seed(0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `gpu` without a GPU, and one marked `needs` on a processor without it."""
    if item.get_closest_marker("gpu") is not None:
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
    for marker in item.iter_markers("needs"):
        for need in marker.args:
            if reason := _reason_against(need):
                pytest.skip(f"needs {need}: {reason}")


def _reason_against(need: str) -> str:
    """Return why this processor or this torch cannot do what a test needs; empty if it can."""
    import torch
    from weft.blocks.kernels import linear, prepacked, quantized

    levels = quantized.levels_of
    answers: dict[str, tuple[Callable[[], bool], str]] = {
        "oneDNN": (linear.has_onednn, "this torch has none"),
        "prepacking": (lambda: prepacked.can_pack(torch.float32), "this torch has no oneDNN"),
        "int8 of FBGEMM": (lambda: levels(quantized.fbgemm) > 0, "no exact products here"),
        "int8 of oneDNN": (lambda: levels(quantized.onednn) > 0, "no exact products here"),
    }
    can, reason = answers[need]
    return "" if can() else reason


@pytest.fixture(scope="session")
def multiply_integers() -> Packer:
    """Return a library for products in int8 that is exact on every processor, and slow."""

    def pack(rounded_OI: Tensor, scale_O: Tensor) -> Product:
        def product(x_RI: Tensor) -> Tensor:
            integers_RI = (127 * x_RI.double()).round().nan_to_num()
            return (integers_RI @ rounded_OI.double().T * scale_O.double() / 127).float()

        return product

    return pack


@pytest.fixture
def int8(multiply_integers: Packer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let models decode in int8: by `multiply_integers` if torch does not on this processor."""
    from weft.blocks.kernels import quantized

    if quantized.library() is None:
        chosen = quantized.Library(multiply_integers, 127)
        monkeypatch.setattr(quantized, "library", lambda: chosen)
