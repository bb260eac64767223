"""The loop over positions with a cell: by hand, against torch's cells, and wrong uses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from weft.blocks.kernels.decode_state import Capacity
from weft.graphs.cost.decode_state import state_by_node
from weft.graphs.cost.flops import flops, flops_by_node
from weft.graphs.cost.table import cost_table
from weft.graphs.ir.canonical import canonical
from weft.runtime.codegen.build import build
from weft.runtime.compile.torch_compile import compile_model

from ..single_node import findings_of, graph_of
from ..test_steps import bytes_of

D = 3
LSTM_CELL = {
    "inputs": {"x": "f[b 1 3]", "h": "f[b 1 3]", "c": "f[b 1 3]"},
    "outputs": {"h": "h.y", "c": "c.y"},
    "nodes": {
        name: {
            "use": "elementwise@1",
            "in": {"x": f"{name}_x.y", "z": f"{name}_h.y"},
            "params": {"y": "tanh(x + z)" if name == "new" else "sigmoid(x + z)"},
        }
        for name in ("enter", "forget", "new", "leave")
    }
    | {
        f"{name}_{port}": {"use": "linear@1", "in": {"x": port}, "params": {"d_out": 3}}
        for name in ("enter", "forget", "new", "leave")
        for port in ("x", "h")
    }
    | {
        "c": {
            "use": "elementwise@1",
            "in": {"c": "c", "i": "enter.y", "f": "forget.y", "n": "new.y"},
            "params": {"y": "f * c + i * n"},
        },
        "h": {
            "use": "elementwise@1",
            "in": {"c": "c.y", "o": "leave.y"},
            "params": {"y": "o * tanh(c)"},
        },
    },
}
"""A cell with two carried values."""
READER_CELL = {
    "inputs": {
        "x": "f[b 1 3]",
        "h": "f[b 1 3]",
        "gate": "f[b 1 3]",
        "memory": "f[b s 3]",
        "memory_mask": "mask[b s]",
    },
    "outputs": {"h": "new.y", "read": "read.y"},
    "nodes": {
        "read": {
            "use": "dot_attention@1",
            "in": {"query": "h", "key": "memory", "value": "memory", "mask": "memory_mask"},
        },
        "new": {
            "use": "elementwise@1",
            "in": {"x": "x", "s": "h", "r": "read.y", "g": "gate"},
            "params": {"y": "g * tanh(x + r) + (1 - g) * s"},
        },
    },
}
"""A cell that also reads a gate at each position, and a memory; `read` is an output alone."""


def scan(
    cell: dict[str, Any], carry: dict[str, Any], inputs: dict[str, str], **more: Any
) -> dict[str, Any]:
    """Return a spec with one scan, which reads inputs of some types at ports of their names."""
    times = {name: "time" for name in ("S", "T") if f" {name}" in " ".join(inputs.values())}
    return {
        "format": 1,
        "name": "loop",
        "axes": {"B": "batch", **times},
        "inputs": inputs,
        "outputs": {name: f"node.{name}" for name in carry},
        "blocks": {"cell": cell},
        "nodes": {
            "node": {
                "use": "scan@1",
                "in": {name: name for name in inputs},
                "params": {"carry": carry},
                "fill": {"cell": {"use": "cell"}},
            }
        },
        **more,
    }


LSTM = scan(LSTM_CELL, {"h": 3, "c": 3}, {"x": "f[B T 3]"}, step={"axis": "T"})
READER_INPUTS = {
    "x": "f[B T 3]",
    "gate": "f[B T 3]",
    "memory": "f[B S 3]",
    "memory_mask": "mask[B S]",
    "start": "f[B 3]",
    "mask": "mask[B T]",
}


def reader(**more: Any) -> dict[str, Any]:
    """Return the scan whose cell reads a memory, from a start that is a wire."""
    inputs = {name: type_ for name, type_ in READER_INPUTS.items() if name != "start"}
    spec = scan(READER_CELL, {"h": 3, "read": 3}, inputs, **more)
    spec["inputs"] = READER_INPUTS
    spec["nodes"]["node"]["in"]["h"] = "start"
    return spec


def drawn(length: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Return inputs of the reader: the last position of the second sequence is padding."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    mask = torch.ones(2, length, dtype=torch.bool)
    mask[1, -1] = False
    memory_mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    values = {"x": normal(2, length, D), "gate": normal(2, length, D).sigmoid()}
    values |= {"memory": normal(2, 4, D), "memory_mask": memory_mask, "start": normal(2, D)}
    return {**values, "mask": mask}


def read_by_loop(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Run the reader one sequence and one position after another."""
    states, reads = [], []
    for b in range(2):
        state, read = values["start"][b], torch.zeros(D, dtype=torch.float64)
        memory = values["memory"][b][values["memory_mask"][b]]
        for t in range(values["x"].size(1)):
            if values["mask"][b, t]:
                read = (memory @ state).softmax(0) @ memory
                gate = values["gate"][b, t]
                state = gate * torch.tanh(values["x"][b, t] + read) + (1 - gate) * state
            states.append(state)
            reads.append(read)
    shape = values["x"].shape
    return {"h": torch.stack(states).view(shape), "read": torch.stack(reads).view(shape)}


def test_a_sum_by_hand() -> None:
    """1; 1 / 2 + 2 = 2.5; 2.5 / 2 + 3 = 4.25."""
    spec = scan({"inputs": {}, "outputs": {}, "nodes": {}}, {"y": 1}, {"x": "f[B T 1]"})
    del spec["blocks"]
    half = {"use": "elementwise@1", "params": {"y": "y / 2 + x"}}
    spec["nodes"]["node"]["fill"] = {"cell": half}

    y = build(graph_of(spec))(x=torch.tensor([[[1.0], [2.0], [3.0]]]))["y"]

    assert y.flatten().tolist() == [1.0, 2.5, 4.25]


def test_two_carried_values_are_the_lstm_of_torch() -> None:
    """Outputs, last states and gradients of the weights of nn.LSTM."""
    model, torchs = build(graph_of(LSTM)).double(), nn.LSTM(D, D, batch_first=True).double()
    names = ("enter", "forget", "new", "leave")  # the order of torch
    with torch.no_grad():
        for port, weight, bias in (
            ("x", torchs.weight_ih_l0, torchs.bias_ih_l0),
            ("h", torchs.weight_hh_l0, torchs.bias_hh_l0),
        ):
            for index, name in enumerate(names):
                linear = getattr(model.node.cell, f"{name}_{port}")
                linear.weight.copy_(weight[index * D : (index + 1) * D])
                linear.bias.copy_(bias[index * D : (index + 1) * D])
    x = torch.randn(2, 7, D, dtype=torch.float64)

    outputs = model(x=x)
    expected, (_, last_c) = torchs(x)

    torch.testing.assert_close(outputs["h"], expected)
    torch.testing.assert_close(outputs["c"][:, -1], last_c[0])
    outputs["h"].square().sum().backward()
    expected.square().sum().backward()
    for port, weight in (("x", torchs.weight_ih_l0), ("h", torchs.weight_hh_l0)):
        linears = [getattr(model.node.cell, f"{name}_{port}") for name in names]
        assert weight.grad is not None
        torch.testing.assert_close(torch.cat([one.weight.grad for one in linears]), weight.grad)


@torch.no_grad()
def test_wires_enter_at_each_position_or_whole() -> None:
    """A gate by position, a masked memory for all, a start that is a wire, and a padded end."""
    values = drawn(5)

    outputs = build(graph_of(reader())).double()(**values)

    expected = read_by_loop(values)
    torch.testing.assert_close(outputs["h"], expected["h"])
    torch.testing.assert_close(outputs["read"], expected["read"])


@torch.no_grad()
@pytest.mark.parametrize("together", [1, 2])
def test_steps_are_the_loop(together: int) -> None:
    """With two beams, whose fixed wires are kept once for a sentence; and the bytes are counted."""
    graph, values = graph_of(reader(step={"axis": "T"})), drawn(4)
    model, fixed = build(graph).double(), ("memory", "memory_mask", "start")
    capacity = Capacity(2, 2, 4, torch.float64, torch.device("cpu"))

    state = model.begin(capacity, **{name: values[name] for name in fixed})
    stepped = []
    for position in range(0, 4, together):
        span = slice(position, position + together)
        moving = {name: values[name][:, span] for name in ("x", "gate", "mask")}
        moving = {name: value.repeat_interleave(2, 0) for name, value in moving.items()}
        stepped.append(model.step(**moving, state=state, position=position)["h"])

    expected = read_by_loop(values)["h"].repeat_interleave(2, 0)
    torch.testing.assert_close(torch.cat(stepped, 1), expected)
    alone = model.begin(
        Capacity(2, 1, 4, torch.float64, torch.device("cpu")),
        **{name: values[name] for name in fixed},
    )
    sizes = {"B": 2, "S": 4, "T": 4}
    assert sum(state_by_node(graph, sizes, 8).values()) == bytes_of(alone)


def test_a_state_may_be_a_matrix() -> None:
    """S_t = S_{t-1} + x_t x_t^T, whose trace is the sum of the squares."""
    cell = {
        "inputs": {"x": "f[b 1 3]", "memory": "f[b 1 3 3]"},
        "outputs": {"memory": "sum.y"},
        "nodes": {
            "outer": {
                "use": "einsum@1",
                "in": {"x": "x", "z": "x"},
                "params": {"y": "b t i, b t j -> b t i j"},
            },
            "sum": {
                "use": "elementwise@1",
                "in": {"x": "outer.y", "z": "memory"},
                "params": {"y": "x + z"},
            },
        },
    }
    x = torch.randn(2, 4, 3, dtype=torch.float64)

    spec = scan(cell, {"memory": [3, 3]}, {"x": "f[B T 3]"})
    memory = build(graph_of(spec)).double()(x=x)["memory"]

    traces = memory.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(traces, x.square().sum(-1).cumsum(1))


def test_costs_count_the_cell_once_for_each_position() -> None:
    """8 maps of 3 x 3 for each of 2 x 7 vectors; a chain of 4 operations for each position."""
    graph, sizes = graph_of(LSTM), {"B": 2, "T": 7}
    model = build(graph).double()

    with FlopCounterMode(display=False) as counter:
        model(x=torch.randn(2, 7, D, dtype=torch.float64))

    assert flops(graph, sizes) == counter.get_total_flops() == 2 * 8 * 9 * 14
    assert flops_by_node(graph, sizes)["node/cell.new_x"] == 2 * 9 * 14
    table = cost_table(graph, sizes)
    assert table.sequential == 7 * 4
    assert table.path_length == {"T": 7 * 4}
    runs = {node.path: node.runs for node in table.nodes}
    assert (runs["node"], runs["node/cell.new_x"]) == (1, 7)
    budgeted = {**LSTM, "require": [f"flops <= {2 * 8 * 9 * 32 - 1}"]}
    assert [finding.code for finding in findings_of(budgeted)] == ["E05"]


def test_the_names_of_carried_values_have_no_order() -> None:
    """Neither in the canonical form nor in the outputs."""
    other = copy.deepcopy(LSTM)
    other["nodes"]["node"]["params"]["carry"] = {"c": 3, "h": 3}

    assert canonical(graph_of(other)) == canonical(graph_of(LSTM))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dynamo and Inductor, about themselves
def test_the_cell_is_one_compiled_graph() -> None:
    """For all positions and lengths, with the same outputs and gradients."""
    torch.compiler.reset()
    eager = build(graph_of(LSTM)).double()
    compiled = copy.deepcopy(eager)
    report = compile_model(compiled, "layers")

    for length in (3, 5, 9):
        x = torch.randn(2, length, D, dtype=torch.float64)
        first, second = eager(x=x)["h"], compiled(x=x)["h"]
        torch.testing.assert_close(first, second)
        first.sum().backward()
        second.sum().backward()

    assert (report.templates, report.expected, report.found) == (("Cell",), 1, 1)
    for one, two in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
    torch.compiler.reset()


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the spec of the LSTM with another value at a path."""
    spec = copy.deepcopy(LSTM)
    *outer, last = path.split("/")
    inner: Any = spec
    for key in outer:
        inner = inner[key]
    inner[last] = value
    return spec


NODE, CELL = "nodes/node", "blocks/cell"
WRONG = [
    (changed(f"{NODE}/params/carry", {}), "P01", "carry"),
    (changed(f"{NODE}/params/carry", {"h": 3, "c": []}), "P01", "'c' has no widths"),
    (changed(f"{NODE}/params/carry", {"x": 3}), "P01", "'x' cannot be the name"),
    (changed(f"{NODE}/params/carry", {"h": 3, "2h": 3}), "P01", "'2h'"),
    (changed(f"{NODE}/params/carry", {"h": 4, "c": 3}), "T03", "4"),
    (changed(f"{NODE}/params/carry", {"h": 3, "c": 3, "z": 3}), "N03", "no output 'z'"),
    (changed(f"{NODE}/params/carry", {"h": 3}), "W11", "2 outputs"),
    (changed(f"{NODE}/params", {}), "W07", "carry"),
    (changed(f"{NODE}/params/carry", {"h": 3, "mask": 3}), "P01", "'mask' cannot be the name"),
    (changed(f"{NODE}/fill", {}), "W05", "slot 'cell' of scan@1 is empty"),
    (changed(f"{NODE}/in", {"x": "x", "gate": "x"}), "N03", "'gate'"),
    (changed(f"{NODE}/in", {"x": "x", "h": "x"}), "T04", "b 3"),
    (changed(f"{NODE}/in", {}), "W01", "port 'x'"),
    (changed(f"{CELL}/inputs/h", "f[B T 3]"), "T03", "1"),
    (changed(f"{CELL}/inputs", {**LSTM_CELL["inputs"], "gate": "f[b 1 3]"}), "W01", "gate"),
    (changed("inputs/x", "f[B 5 3]"), "T03", "not 5 fixed ones"),
]


@pytest.mark.parametrize(("spec", "code", "text"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_scan_is_found(spec: dict[str, Any], code: str, text: str) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec)

    finding = next((finding for finding in findings if finding.code == code), None)
    assert finding is not None, findings
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert finding.at.startswith(("/nodes/node", "/blocks/cell", "/inputs/x"))
    assert "N01" not in [finding.code for finding in findings]  # the template is known


@pytest.mark.parametrize("type_", ["f[B 2*T 3]", "f[B T T]", "f[B T+1 3]"])
def test_a_wire_with_other_positions_is_found(type_: str) -> None:
    """A cell cannot see two positions, or pairs of them."""
    spec = reader()
    spec["inputs"] = {**READER_INPUTS, "gate": type_}

    (finding,) = [finding for finding in findings_of(spec) if finding.code == "T03"]

    assert finding.at == "/nodes/node/in/gate"
    assert "wire a value that has T once, or not at all" in finding.help
