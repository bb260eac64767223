"""Tests of profiler summaries: every event's self time is counted once, at its node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from weft.runtime import api
from weft.runtime.analysis.measure import measure
from weft.runtime.analysis.profile_scopes import BETWEEN, DATA, LOSS, NODE, UPDATE, paths_of, scoped
from weft.runtime.analysis.profile_summary import (
    Profile,
    by_row,
    collapsed,
    flame_svg,
    summarize,
    table,
)
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.runtime.train.run import Run
from weft.specs.findings import InputError
from weft.specs.load import load

SMALL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 2, "vocab": 30}


@dataclass
class Event:
    """The fields of a profiler event that the summary reads."""

    name: str
    self_cpu_time_total: float = 0.0
    sequence_nr: int = -1
    cpu_children: list[Event] = field(default_factory=list)
    self_cpu_memory_usage: int = 0
    thread: int = 1
    fwd_thread: int = 1
    cpu_parent: Any = None
    device_type: str = "DeviceType.CPU"
    self_device_time_total: float = 0.0
    self_device_memory_usage: int = 0

    def __post_init__(self) -> None:
        """Set the parent of the children."""
        for child in self.cpu_children:
            child.cpu_parent = self

    @property
    def cpu_time_total(self) -> float:
        """CPU time including children."""
        return self.self_cpu_time_total + sum(child.cpu_time_total for child in self.cpu_children)

    def all(self) -> list[Event]:
        """Return the event and all its descendants."""
        return [self, *(event for child in self.cpu_children for event in child.all())]


def test_times_go_to_the_innermost_node_and_its_backward() -> None:
    """By hand: two nested nodes, a loss, and events outside of both."""
    backward = "autograd::engine::evaluate_function: "
    # Sequence number 7 occurs first in `a`, without a backward step, then in `a/f`, with one.
    inner = Event(
        f"{NODE}a/f", 1, cpu_children=[Event("aten::mm", 20, 7, self_cpu_memory_usage=80)]
    )
    outer = Event(f"{NODE}a", 2, cpu_children=[Event("aten::detach", 3, 7), inner])
    loss = Event(LOSS, 4, cpu_children=[outer, Event("aten::sum", 5, 8)])
    update = Event(
        UPDATE,
        6,
        cpu_children=[
            Event(BETWEEN, 30, cpu_children=[Event(DATA, 100), Event("aten::div", 1)]),
            loss,
            Event("Optimizer.step#Adam.step", 7, cpu_children=[Event("aten::mul", 8)]),
            Event("aten::item", 9, cpu_children=[Event("aten::_local_scalar_dense", 10)]),
        ],
    )
    steps = [
        Event(f"{backward}SumBackward0", 11, 8),
        Event(f"{backward}MmBackward0", 12, 7, cpu_children=[Event("aten::mm", 40)]),
        Event(f"{backward}torch::autograd::AccumulateGrad", 13, -1),
    ]
    events = [event for root in (update, *steps) for event in root.all()]

    found = summarize(events, updates=1, seconds=1.0, device="cpu")

    micro = {path: (s.forward * 1e6, s.backward * 1e6) for path, s in found.nodes.items()}
    assert micro == {
        "a": pytest.approx((5, 0)),
        "a/f": pytest.approx((21, 52)),
        "loss": pytest.approx((9, 11)),
    }
    assert {name: seconds * 1e6 for name, seconds in found.other.items()} == pytest.approx(
        {
            "waiting for the next batch": 100,
            "between updates": 31,
            "optimizer": 15,
            "rest of the update": 25,
            "accumulated gradients": 13,
        }
    )
    assert (found.nodes["a/f"].memory, found.nodes["a"].memory) == (80, 0)
    assert (found.syncs, found.sync_seconds * 1e6) == (1, pytest.approx(10))
    assert sum(found.stacks.values()) == pytest.approx(
        sum(event.self_cpu_time_total for event in events) * 1e-6
    )
    rows = by_row(found, ["a"])
    assert (rows["a"].forward * 1e6, rows["loss"].backward * 1e6) == pytest.approx((26, 11))


def test_on_an_accelerator_its_time_counts() -> None:
    """Kernels count for the operation that started them; waiting for data is host time."""
    product = Event("aten::mm", 3, 1, self_device_time_total=50)
    events = [Event(DATA, 8), Event(f"{NODE}a", 2, cpu_children=[product]), product]
    events.append(Event("kernel", 50, device_type="DeviceType.CUDA"))

    found = summarize(events, updates=2, seconds=1.0, device="cuda")

    assert found.nodes["a"].forward * 1e6 == pytest.approx(25)
    assert found.other["waiting for the next batch"] * 1e6 == pytest.approx(4)


def test_every_node_and_slot_has_a_module() -> None:
    """Copies share a path; the modules are those of the built model."""
    graph = graph_of(load("transformer-tiny", SMALL))
    paths = paths_of(graph)
    model = build(graph)

    assert paths["decoder.1.cross_attention.f"] == "decoder.*.cross_attention/f"
    assert paths["encoder.0"] == "encoder.*"
    assert paths["head"] == "head"
    assert all(model.get_submodule(path) is not None for path in paths)


def test_shared_copies_are_one_module() -> None:
    """ALBERT runs one layer several times: its modules have no number."""
    graph = graph_of(load("albert", {"vocab": 50, "d_model": 16, "heads": 2, "d_ff": 32}))
    model = build(graph)

    named = {path for path, _ in model.named_modules()}
    inside = [path for path in paths_of(graph) if "." in path]

    assert inside
    assert set(inside) <= named


def test_scopes_are_taken_off() -> None:
    """Profiling leaves the model unchanged."""
    graph = graph_of(load("transformer-tiny", SMALL))
    model = build(graph)

    def hooks() -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

    with scoped(model, graph):
        assert hooks() >= 2 * len(paths_of(graph))
    assert hooks() == 0


def test_a_compiled_template_is_one_scope() -> None:
    """A compiled template has one scope without inner hooks, and its call is restored."""
    graph = graph_of(load("transformer-tiny", SMALL))
    model: Any = build(graph)
    layer = model.encoder[0]
    called: list[int] = []
    layer._compiled_call_impl = called.append

    with scoped(model, graph):
        layer(3)
        assert not layer.self_attention._forward_hooks
        assert model.encoder[1].self_attention._forward_hooks

    assert called == [3]
    assert layer._compiled_call_impl == called.append


def test_stacks_become_lines_and_boxes() -> None:
    """Names are escaped, shares are relative to the total, narrow boxes are left out."""
    stacks = {("forward", "a;b"): 3e-3, ("forward", "<c>"): 1e-3, ("tiny",): 1e-7}

    assert collapsed(stacks) == "forward;<c> 1000\nforward;a,b 3000\n"
    picture = ET.fromstring(flame_svg(stacks, "a & b"))
    titles = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [
        "update: 4.00 ms, 100.0%",
        "forward: 4.00 ms, 100.0%",
        "a;b: 3.00 ms, 75.0%",
        "<c>: 1.00 ms, 25.0%",
    ]
    widths = [
        float(element.attrib["width"])
        for element in picture.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert widths == pytest.approx([1200, 1200, 900, 300], abs=0.2)


def test_an_empty_profile_is_a_table_too() -> None:
    """An empty profile has a table and a picture without a division by zero."""
    empty = Profile(1, "cpu", 0.0, {}, {}, 0.0, 0.0)

    assert "node" in table(empty)
    assert flame_svg(empty.stacks, "none").startswith("<svg")


@pytest.mark.slow
def test_a_run_is_profiled_and_not_begun(toy_run: Callable[..., Run], tmp_path: Path) -> None:
    """Profiles have nodes, data, loss and optimizer; files are written, but no checkpoint."""
    found, files = api.profile(toy_run(), out=tmp_path / "out", updates=2)

    assert found.updates == 2
    layers = ("model.encoder.*.self_attention/f", "model.decoder.*.feed_forward/f")
    assert {*layers, "cross_entropy", "loss"} <= set(found.nodes)
    for path in layers:
        assert found.nodes[path].forward > 0
        assert found.nodes[path].backward > 0
    assert found.other["optimizer"] > 0
    assert found.other["waiting for the next batch"] > 0
    assert found.other["between updates"] > 0
    assert 0 < sum(s.total for s in found.nodes.values()) < found.seconds
    assert sorted(path.name for path in files) == [
        "flame.svg",
        "profile.json",
        "stacks.txt",
        "trace.json.gz",
    ]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["prepared", "profile"]
    with pytest.raises(InputError, match="cannot profile 0 updates"):
        api.profile(toy_run(), out=tmp_path / "out", updates=0)


@pytest.mark.integration
def test_a_spec_is_measured_by_node() -> None:
    """Products take time in both passes; the head leaves its logits allocated."""
    graph = graph_of(load("transformer-tiny", {**SMALL, "layers": 1}))

    found = measure(graph, {"B": 2, "S": 5, "T": 7}, device="cpu")

    assert found.nodes["decoder.*.cross_attention/f"].backward > 0
    assert found.nodes["head"].memory == 2 * 7 * 30 * 4
