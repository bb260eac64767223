"""Tests of the kernel choice: measured, cached, overridden and restored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.blocks.kernels import attention_backends as backends
from weft.blocks.kernels.attention import core_for
from weft.blocks.kernels.attention_backends import COMPARED
from weft.runtime.compile import autotune as module
from weft.runtime.compile import autotune as rounds
from weft.runtime.compile.autotune import as_kept, choose_kernels
from weft.specs.findings import InputError

CPU = torch.device("cpu")
needs_onednn = pytest.mark.needs("oneDNN")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the caches and use a temporary cache folder."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    for name in ("WEFT_PRODUCT", "WEFT_ATTENTION", "WEFT_LOSS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_known", {})


def timed(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]) -> list[str]:
    """Replace jobs by ones that take given times; return the jobs that ran."""
    ran: list[str] = []
    now = [0.0]

    def job(name: str) -> Callable[[], None]:
        def run() -> None:
            ran.append(name)
            now[0] += seconds[name]

        return run

    monkeypatch.setattr(module, "_product_job", job)
    monkeypatch.setattr(
        module, "_attention_job", lambda core, length, *_, **__: job(f"{core}{length}")
    )
    monkeypatch.setattr(
        module, "_unpadded_job", lambda *_, varlen: job("unpadded" if varlen else "padded")
    )
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: now[0])
    return ran


LENGTHS = {f"{core}{length}": 0.01 for core in COMPARED for length in (32, 128, 512)}


@needs_onednn
def test_the_fastest_is_chosen_once_for_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention is chosen by length; another process reads the measurement of the first."""
    ran = timed(monkeypatch, {**LENGTHS, "torch": 0.02, "onednn": 0.01, "plain32": 0.005})

    first = choose_kernels(CPU, half=False)
    monkeypatch.setattr(module, "_known", {})
    second = choose_kernels(CPU, half=False)

    assert first.product == second.product == "onednn"
    assert first.attention == second.attention
    assert first.attention == {"32": "plain", "128": "fused", "512": "fused", "*": "fused"}
    # One warm-up and six rounds of products, and of attention at three lengths.
    assert len(ran) == 7 * (2 + 3 * len(COMPARED))
    assert "plain for attention at 32 2.00 [2.00, 2.00] x fused in 6 rounds" in first.reason
    today = json.loads(next((tmp_path / "kernels").iterdir()).read_text())["measured"]
    assert second.reason == first.reason.replace("measured:", f"measured on {today}:")
    assert len(list((tmp_path / "kernels").iterdir())) == 1


def test_a_cache_of_another_processor_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache distinguishes machines, because a home folder may be shared."""
    timed(monkeypatch, {**LENGTHS, "torch": 0.01, "onednn": 0.01, "plain32": 0.005})
    monkeypatch.setattr(module, "processor_identity", lambda: "one avx2")
    assert choose_kernels(CPU, half=True).attention["32"] == "plain"
    monkeypatch.setattr(module, "_known", {})
    timed(monkeypatch, {**LENGTHS, "torch": 0.01, "onednn": 0.01, "plain32": 0.02})
    assert choose_kernels(CPU, half=True).attention["32"] == "plain"

    monkeypatch.setattr(module, "processor_identity", lambda: "one avx2 avx512f")

    assert choose_kernels(CPU, half=True).attention["32"] == "fused"
    assert len(list((tmp_path / "kernels").iterdir())) == 2


@needs_onednn
def test_a_small_speedup_does_not_change_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small speedup, which may be noise, does not change the choice."""
    timed(monkeypatch, {**LENGTHS, "torch": 0.0104, "onednn": 0.01})
    assert choose_kernels(CPU, half=False).product == "torch"


def test_a_damaged_file_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged cache file is not an error."""
    ran = timed(monkeypatch, {**LENGTHS, "torch": 0.01, "onednn": 0.01})
    choose_kernels(CPU, half=True)
    (kept,) = (tmp_path / "kernels").iterdir()
    kept.write_text('{"comparisons": {"attention at 32": {"default": "fused", "seconds": 3}}}')
    monkeypatch.setattr(module, "_known", {})
    before = len(ran)

    choose_kernels(CPU, half=True)

    assert len(ran) == 2 * before
    assert json.loads(kept.read_text())["comparisons"].keys() >= {"attention at 32"}


def test_a_requested_kernel_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run file overrides the measurement, and the environment overrides both."""
    monkeypatch.setattr(module, "_compare", lambda *_, **__: pytest.fail("measured"))
    monkeypatch.setenv("WEFT_ATTENTION", "plain")

    found = choose_kernels(CPU, half=False, product_kernel="torch", attention_kernel="flex")

    assert (found.product, dict(found.attention)) == ("torch", {"*": "plain"})


def test_losses_use_triton_on_cuda_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requested without CUDA it is an error; stored choices of older runs have torch's."""
    requested = {"product_kernel": "torch", "attention_kernel": "fused"}
    cuda = torch.device("cuda")
    monkeypatch.setattr(module.losses, "has_triton", lambda: True)
    assert choose_kernels(cuda, half=True, **requested).choice.loss == "triton"
    assert choose_kernels(cuda, half=True, **requested, loss_kernel="torch").loss == "torch"
    assert choose_kernels(CPU, half=True, **requested).loss == "torch"
    with pytest.raises(InputError, match="needs CUDA") as caught:
        choose_kernels(CPU, half=True, **requested, loss_kernel="triton")
    assert caught.value.location == "/kernels/loss"

    kept = {"product": "torch", "attention": {"*": "fused"}}
    assert [one and one.loss for one in (as_kept(kept), as_kept({**kept, "loss": "triton"}))] == [
        "torch",
        "triton",
    ]
    monkeypatch.setattr(module.losses, "has_triton", lambda: False)
    assert choose_kernels(cuda, half=True, **requested).loss == "torch"
    assert as_kept({**kept, "loss": "triton"}) is None


@pytest.mark.parametrize(
    ("half", "seconds", "expected"),
    [(True, (2.0, 1.0), "varlen"), (True, (1.0, 2.0), None), (False, (2.0, 1.0), None)],
)
def test_varlen_is_chosen_for_unpadded_rows_on_cuda_where_it_is_faster(
    half: bool, seconds: tuple[float, float], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with padding the rows; padded batches keep their backend; it is kept."""
    times = [0.01 * one for one in seconds]
    timed(monkeypatch, {**LENGTHS, "padded": times[0], "unpadded": times[1]})
    monkeypatch.setattr(module, "device_identity", lambda _: "one GPU")

    found = choose_kernels(torch.device("cuda"), half=half)

    assert found.attention.get("unpadded") == expected
    assert found.attention["*"] == "fused"
    assert ("attention fused, varlen without padding" in str(found)) == bool(expected)
    kept = as_kept(found.as_json())
    assert kept is not None
    assert kept.attention == found.attention


def test_without_the_kernel_of_varlen_rows_are_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of torch do not have it, and old GPUs refuse it."""
    timed(monkeypatch, {**LENGTHS, "padded": 0.01})
    made = module._unpadded_job

    def lacking() -> None:
        raise RuntimeError("FlashAttention only supports Ampere GPUs\nmore")

    monkeypatch.setattr(
        module,
        "_unpadded_job",
        lambda *given, varlen: lacking if varlen else made(*given, varlen=False),
    )
    monkeypatch.setattr(module, "device_identity", lambda _: "one GPU")

    found = choose_kernels(torch.device("cuda"), half=True)

    assert "unpadded" not in found.attention
    assert "fused for attention without padding" in found.reason


def test_both_measured_ways_compute_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a substitute for the kernel, on the CPU: otherwise different work would be compared."""

    def kernel(query: Any, key: Any, value: Any, starts: Any, *_: Any, **given: Any) -> Any:
        parts = []
        for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            heads = (one[first:last].transpose(0, 1) for one in (query, key, value))
            causal = given["window_size"] == (-1, 0)
            attended = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal)
            parts.append(attended.transpose(0, 1))
        return torch.cat(parts)

    varlen = pytest.importorskip("torch.nn.attention.varlen")
    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    monkeypatch.setattr(module, "TOKENS", 48)
    monkeypatch.setattr(module, "LENGTHS", (8, 12, 16))
    found = []
    for one in (False, True):
        torch.manual_seed(1)
        job = module._unpadded_job(CPU, varlen=one, dtype=torch.float32)
        found.append(job())

    torch.testing.assert_close(found[0], found[1])
    assert found[0].shape == (6 + 8 + 10 + 12, 8, 64)


def test_a_backend_of_unpadded_rows_is_not_that_of_padded_ones() -> None:
    """`varlen` waits for the device in padded batches, and would take all lengths."""
    cores: dict[str, backends.Core] = {"32": "plain", "*": "fused", "unpadded": "varlen"}
    one = torch.empty(1, 1, 8, 8)

    assert core_for(cores, one, one) == "plain"
    assert core_for(cores, one, torch.empty(1, 1, 40, 8)) == "fused"


def test_an_unknown_kernel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the nearest name, and the place where the kernel was chosen."""
    monkeypatch.setenv("WEFT_ATTENTION", "fuse")
    with pytest.raises(InputError, match="no kernel 'fuse'") as caught:
        choose_kernels(CPU, half=False)
    assert "fused" in str(caught.value)
    assert caught.value.location == "WEFT_ATTENTION"

    monkeypatch.delenv("WEFT_ATTENTION")
    with pytest.raises(InputError, match="no kernel 'fuse'") as caught:
        choose_kernels(CPU, half=False, attention_kernel="fuse")
    assert caught.value.location == "/kernels/attention"


@pytest.mark.parametrize("kept", [{}, {"product": "torch", "attention": {"*": "best"}}])
def test_an_invalid_stored_choice_is_ignored(kept: dict[str, Any]) -> None:
    """An invalid stored choice is ignored."""
    assert as_kept(kept) is None


def test_a_measurement_chooses_a_backend_for_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement runs and chooses a backend for every length."""
    monkeypatch.setattr(rounds, "LEAST", 1)
    monkeypatch.setattr(rounds, "MOST", 1)
    monkeypatch.setattr(module, "LENGTHS", (8,))
    monkeypatch.setattr(module, "TOKENS", 16)
    found = choose_kernels(CPU, half=False)
    assert set(found.attention) == {"8", "*"}
