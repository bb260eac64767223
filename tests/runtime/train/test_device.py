"""Tests of deterministic algorithms: a choice of the process that a training restores."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.runtime import api
from weft.runtime.train.device import CUBLAS, RunDevice, choose, deterministic, settings_of_process
from weft.runtime.train.engine import Engine
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_a_deterministic_run_restores_the_choice_of_the_process(
    toy_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its losses are computed with deterministic algorithms; the kernels are not measured."""
    seen, logs, plain = set[bool](), [], Engine.loss

    def loss(self: Engine, batch: Any) -> Any:
        seen.add(torch.are_deterministic_algorithms_enabled())
        return plain(self, batch)

    class Logs(api.Silent):
        def log(self, text: str) -> None:
            logs.append(text)

    monkeypatch.setattr(Engine, "loss", loss)
    run = toy_run(updates=1, deterministic=True, kernels={})

    api.train(run, out=tmp_path / "run", listener=Logs())

    assert seen == {True}
    assert not torch.are_deterministic_algorithms_enabled()
    assert "kernels: products by torch, attention fused: requested" in logs


@pytest.mark.integration
def test_a_training_restores_the_threads_of_the_process(
    toy_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are one setting of the process; a program keeps its own after a training."""
    seen, plain, before = set[int](), Engine.loss, torch.get_num_threads()

    def loss(self: Engine, batch: Any) -> Any:
        seen.add(torch.get_num_threads())
        return plain(self, batch)

    monkeypatch.setattr(Engine, "loss", loss)

    api.train(toy_run(updates=1, threads=before + 1), out=tmp_path / "run")

    assert seen == {before + 1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("requested", "capability", "precision", "reason"),
    [
        ("auto", "avx512_bf16", "bfloat16", "bfloat16 is fast on this cpu"),
        ("auto", "amx_tile", "bfloat16", "bfloat16 is fast on this cpu"),
        ("auto", "avx512_f", "float32", "this processor has neither AVX-512 BF16 nor AMX"),
        ("bfloat16", "amx_tile", "bfloat16", "requested"),
        (
            "bfloat16",
            "avx2",
            "bfloat16",
            "requested; float32 is faster, since this processor has neither AVX-512 BF16 nor AMX",
        ),
        ("float32", "avx2", "float32", "requested"),
    ],
)
def test_the_precision_of_a_cpu_depends_on_its_instructions(
    toy_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
    requested: str,
    capability: str,
    precision: str,
    reason: str,
) -> None:
    """Without instructions for bfloat16, its products are emulated; the log names them."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {capability: True})
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")

    choice = choose(toy_run(device="cpu", precision=requested))

    assert (choice.precision, choice.reason) == (precision, reason)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("before", [True, False])
def test_products_in_tf32_are_those_of_a_bfloat16_run_alone(
    toy_run: Callable[..., Run],
    dtype: torch.dtype,
    before: bool,
) -> None:
    """Float32 runs keep all bits of their products, and the program gets its choice back."""
    products = torch.backends.cuda.matmul
    own, products.allow_tf32 = products.allow_tf32, before
    try:
        with settings_of_process(toy_run(), RunDevice(CUDA, dtype, "")):
            assert products.allow_tf32 == (dtype == torch.bfloat16)
        assert products.allow_tf32 == before
    finally:
        products.allow_tf32 = own


def test_an_operator_without_a_deterministic_algorithm_is_an_error_of_the_setting() -> None:
    """The message of torch names a function of torch, not a setting of the run."""
    said = "upsample_cuda does not have a deterministic implementation, but you set ..."

    with (
        pytest.raises(InputError, match="upsample_cuda does not have") as caught,
        deterministic(CPU, enabled=True),
    ):
        raise RuntimeError(said)
    assert caught.value.location == "/deterministic"
    assert not torch.are_deterministic_algorithms_enabled()


def test_cublas_gets_its_workspace_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library cuBLAS reads the variable once; after that it is too late."""
    monkeypatch.setenv(CUBLAS, ":0:0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    with deterministic(CUDA, enabled=True):
        assert os.environ[CUBLAS] == ":4096:8"

    monkeypatch.setenv(CUBLAS, ":0:0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(InputError, match="in use before"), deterministic(CUDA, enabled=True):
        pass
