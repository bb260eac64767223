"""Tests of the peak FLOP/s: measured once per device, and converted to tokens per second."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import fmean

import pytest
import torch
from weft.runtime import api
from weft.runtime.compile import roofline as peak_file
from weft.runtime.compile.roofline import full_speed, peak_flops
from weft.runtime.spec.check import graph_of
from weft.runtime.system.cache import cache_folder
from weft.runtime.train import context
from weft.runtime.train.history import read
from weft.runtime.train.objective import Objective
from weft.runtime.train.run import Run
from weft.specs.load import load

pytestmark = pytest.mark.integration

CPU = torch.device("cpu")


def test_it_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One measurement per precision; a damaged file is measured again."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "new"))
    measurements: list[int] = []

    def measure() -> float:
        measurements.append(1)
        return 5e9

    assert peak_flops(CPU, torch.float32, measure) == 5e9
    assert peak_flops(CPU, torch.float32, measure) == 5e9
    assert len(measurements) == 1
    peak_flops(CPU, torch.bfloat16, measure)
    assert len(measurements) == 2
    (tmp_path / "new" / "peak_flops.json").write_text("[3")
    assert peak_flops(CPU, torch.float32, measure) == 5e9
    assert len(measurements) == 3


def test_a_product_of_n_takes_2_n_cubed_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a second of all threads; other programs make it last an hour."""
    monkeypatch.setattr(peak_file, "SIZES", {"cpu": 8})
    monkeypatch.setattr(peak_file, "SECONDS", 0.0)
    ticks, hours = count(step=torch.get_num_threads()), count(step=3600)
    monkeypatch.setattr(peak_file.time, "process_time", lambda: float(next(ticks)))
    monkeypatch.setattr(peak_file.time, "perf_counter", lambda: float(next(hours)))

    assert peak_file._measured(CPU, torch.float32) == 2 * 8**3


def test_the_cache_is_where_the_system_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """`WEFT_CACHE` overrides the cache folder of the system."""
    monkeypatch.setenv("WEFT_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/weft")
    monkeypatch.setenv("WEFT_CACHE", "/mine")
    assert cache_folder() == Path("/mine")


def test_tokens_a_second_follow_from_the_operations_of_a_pair() -> None:
    """By hand for one layer of width 4 with one head; training costs three passes."""
    params = {"d_model": 4, "heads": 1, "d_ff": 8, "layers": 1, "vocab": 10}
    graph = graph_of(load("transformer-tiny", params))
    source, target = 3, 5
    encoder = 8 * source * 16 + 4 * source**2 * 4 + 4 * source * 4 * 8
    decoder = 8 * target * 16 + 4 * target**2 * 4 + 4 * target * 4 * 8
    cross = 4 * (source + target) * 16 + 4 * source * target * 4
    head = 2 * target * 4 * 10
    lengths = {"source": 3.2, "target": 4.9}
    work = 3 * (encoder + decoder + cross + head)

    assert full_speed(graph, lengths, 1e9) == pytest.approx(1e9 * 8 / work)
    assert full_speed(graph_of(load("gpt2")), lengths, 1e9) is None


def test_a_run_logs_its_mfu(
    toy_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The MFU is the speed relative to the peak; short runs have none."""
    monkeypatch.setattr(context, "peak_flops", lambda *_: 1e9)
    run = toy_run(updates=10)
    api.train(run, out=tmp_path / "short")
    monkeypatch.setattr(context, "MEASURED_FROM", 10)
    result = api.train(run, out=tmp_path / "long")

    def measured(name: str) -> dict[str, float]:
        events = read(tmp_path / name)
        return next(event for event in events if event["type"] == "train")

    assert "mfu" not in measured("short")
    seen = measured("long")
    assert result.checkpoint is not None
    encode = api.open_model(result.checkpoint).line_predictor().source.encode
    data, files = tmp_path / "data", {"source": "train.src", "target": "train.tgt"}
    means = {
        side: fmean(len(encode(line)) + 1 for line in (data / name).read_text().splitlines())
        for side, name in files.items()
    }
    full = full_speed(Objective.of(run, "toy").graph, means, 1e9)
    assert full is not None
    assert seen["mfu"] == pytest.approx(seen["tokens_per_second"] / full)
