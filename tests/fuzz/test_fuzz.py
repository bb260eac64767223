"""Fuzz tests: opening any file gives a graph or findings within the time limit."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    import random
    from types import ModuleType


def _module() -> ModuleType:
    """Return `tests/fuzz/mutate.py`, which `make fuzz` also uses."""
    path = Path(__file__).parent / "mutate.py"
    spec = importlib.util.spec_from_file_location("weft_fuzz_mutate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mutate = _module()
SEEDS = {
    f"{path.parent.name}/{path.stem}": path.read_text(encoding="utf-8") for path in mutate.seeds()
}
MOST_CALLS = 3_000_000
"""Maximum number of function calls for one file: about a second of CPU time."""
Count = Callable[[Callable[[], object]], int]
often = settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def open_within_bounds(folder: Path, data: bytes, count_calls: Count) -> None:
    """Open a file with the given bytes; raise any exception other than findings."""
    path = folder / "spec.json"
    path.write_bytes(data)

    assert count_calls(lambda: mutate.opened(path)) < MOST_CALLS


def as_bytes(value: Any) -> bytes:
    """Return a value as JSON bytes; unpaired surrogates are escaped."""
    return json.dumps(value).encode()


@pytest.mark.integration
@often
@given(st.sampled_from(sorted(SEEDS)), st.randoms(use_true_random=False), st.integers(1, 6))
def test_a_shipped_spec_with_any_edits_gives_findings_or_a_graph(
    tmp_path: Path, count_calls: Count, seed: str, rng: random.Random, times: int
) -> None:
    """Removed keys, other types, copied parts and moved wires never crash or take a second."""
    data = as_bytes(mutate.mutated(json.loads(SEEDS[seed]), rng, times))
    open_within_bounds(tmp_path, data, count_calls)


@pytest.mark.integration
@often
@given(st.sampled_from(sorted(SEEDS)), st.randoms(use_true_random=False), st.integers(1, 6))
def test_a_shipped_spec_with_a_damaged_text_gives_findings_or_a_graph(
    tmp_path: Path, count_calls: Count, seed: str, rng: random.Random, times: int
) -> None:
    """Text that is no longer JSON gives one finding."""
    text = mutate.mutated_text(SEEDS[seed], rng, times)
    open_within_bounds(tmp_path, text.encode(), count_calls)


@pytest.mark.integration
@often
@given(st.binary(max_size=300))
@example(b"\xff\xfe{\x00}\x00")
@example(b"")
def test_any_bytes_give_findings(tmp_path: Path, count_calls: Count, data: bytes) -> None:
    """A file that is not a spec."""
    open_within_bounds(tmp_path, data, count_calls)


@pytest.mark.integration
@pytest.mark.parametrize("seed", sorted(SEEDS))
def test_every_seed_opens_without_a_crash(tmp_path: Path, count_calls: Count, seed: str) -> None:
    """Each seed once revealed a fault, or is a starting point of fuzzing."""
    open_within_bounds(tmp_path, SEEDS[seed].encode(), count_calls)
