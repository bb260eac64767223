"""The contract of blocks, checked for the complete registry: see `cases.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from weft.graphs.cost.flops import flops
from weft.graphs.cost.table import hops_of
from weft.graphs.ir.block_type import BlockType
from weft.graphs.ir.graph import Graph, Part
from weft.graphs.ir.value_type import evaluate
from weft.runtime.codegen.build import build_empty, initialize

from .cases import (
    CASES,
    NODES,
    PRIMES,
    SMALL,
    UNSEEN,
    _as_long,
    behavior,
    drawn,
    graph_of,
    made,
    part_of,
    sequence,
)


def other(graph: Graph, name: str, value: Tensor, shift: int = 1) -> Tensor:
    """Return values of an input that all differ from the given ones."""
    if value.is_floating_point():
        return value + shift
    return (value + shift) % int(str(graph.inputs[name].size or 2))


def named(*behaviors: str, axis: str = "T", again: bool = False) -> pytest.MarkDecorator:
    """Parametrize a test with the cases that have one of these behaviors along an axis.

    Args:
        behaviors: accepted behaviors.
        axis: axis name in the types of the inputs.
        again: whether to select only cases whose output is as long as their input, without noise.
    """
    chosen = {
        name: block
        for name, block in CASES.items()
        if axis in " ".join(block.example_inputs.values())
        and any(port.name == "y" for port in part_of(graph_of(block)).signature.outputs)
        and behavior(part_of(graph_of(block)), axis) in behaviors
    }
    if again:
        chosen = {name: b for name, b in chosen.items() if _as_long(graph_of(b)) and not b.draws}
    return pytest.mark.parametrize("block", chosen.values(), ids=chosen.keys())


EVERY_CASE = pytest.mark.parametrize("block", CASES.values(), ids=CASES.keys())
MASKED = {
    name: block
    for name, block in CASES.items()
    if "mask" in block.example_inputs and "y" in graph_of(block).outputs
}
WITH_MASK = pytest.mark.parametrize("block", MASKED.values(), ids=MASKED.keys())
WITH_DROPOUT = pytest.mark.parametrize(
    "block",
    [b for b in CASES.values() if "dropout" in b.params.model_fields],
    ids=[n for n, b in CASES.items() if "dropout" in b.params.model_fields],
)


@pytest.mark.integration
@pytest.mark.exact
@EVERY_CASE
def test_outputs_have_the_declared_types(block: BlockType) -> None:
    """The inferred shape is the shape that torch computes, for every size of an axis."""
    graph, model = made(block)
    model.to("meta")

    for sizes in PRIMES:
        given = {name: value.to("meta") for name, value in drawn(graph, sizes).items()}
        outputs = model(**given)

        wanted = {
            port: tuple(evaluate(axis, sizes) for axis in type_.axes)
            for port, type_ in graph.outputs.items()
        }
        assert {port: tuple(value.shape) for port, value in outputs.items()} == wanted
        assert all(
            outputs[port].is_floating_point() == (type_.kind in ("f", "bias", "score", "loss"))
            for port, type_ in graph.outputs.items()
        )


@pytest.mark.exact
@EVERY_CASE
def test_the_weights_formula_names_every_parameter(block: BlockType) -> None:
    """Costs, ties and checkpoints use the formula, without torch."""
    graph, model = made(block)

    found = {name: tuple(weight.shape) for name, weight in model.named_parameters()}

    assert found == graph.weights()
    assert graph.parameters() == sum(weight.numel() for weight in model.parameters())
    assert list(model.buffers()) == []


@pytest.mark.integration
@pytest.mark.exact
@EVERY_CASE
def test_flop_formulas_equal_the_counts_of_torch(block: BlockType) -> None:
    """Each formula against torch's counter, which does not see inside fused kernels.

    So attention uses the plain backend, and recurrences run in float64, as products.  Nothing is
    padding: a block may skip it.
    """
    graph, model = made(block)
    model.double()

    for sizes in PRIMES:
        inputs = drawn(graph, sizes)
        inputs = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
        inputs = {n: v | True if v.dtype == torch.bool else v for n, v in inputs.items()}
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            model(**inputs)

        assert flops(graph, sizes) == counter.get_total_flops()


@pytest.mark.parametrize(
    "block",
    [b for b in CASES.values() if not b.draws],
    ids=[n for n in CASES if not CASES[n].draws],
)
def test_rows_of_a_batch_do_not_mix(block: BlockType) -> None:
    """A sequence gives the same result separately as in a batch; a sum over the batch does not."""
    graph, model = made(block)
    inputs = drawn(graph)
    together = model(**inputs)

    def of_row(row: int, values: Mapping[str, Tensor], types: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value.narrow(types[name].axes.index("B"), row, 1)
            for name, value in values.items()
            if "B" in types[name].axes
        }

    for row in range(SMALL["B"]):
        outputs = model(**of_row(row, inputs, graph.inputs))
        alone = {name: outputs[name] for name, t in graph.outputs.items() if "B" in t.axes}
        torch.testing.assert_close(alone, of_row(row, together, graph.outputs))


@EVERY_CASE
def test_every_parameter_learns(block: BlockType) -> None:
    """Every declared weight is used in `forward`."""
    graph, model = made(block)

    given = [value for value in model(**drawn(graph)).values() if value.is_floating_point()]
    loss = sum(((value * torch.randn_like(value)).sum() for value in given), torch.zeros(()))
    if loss.requires_grad:
        loss.backward()

    idle = [
        name
        for name, weight in model.named_parameters()
        if weight.requires_grad
        and not UNSEEN.fullmatch(name)
        and (weight.grad is None or weight.grad.abs().max() < 1e-5)
    ]
    assert idle == []


@pytest.mark.integration
@EVERY_CASE
def test_half_precision_is_near_full_precision(block: BlockType) -> None:
    """No internal operation requires float32, and nothing overflows; bfloat16 has 8 bits."""
    graph, model = made(block)
    inputs = drawn(graph)
    full = model(**inputs)

    half = model.bfloat16()(
        **{name: v.bfloat16() if v.is_floating_point() else v for name, v in inputs.items()}
    )

    for port, value in half.items():
        if not graph.outputs[port].axes:
            assert value.dtype == torch.float32  # a sum over a batch, which training adds up
            continue
        if not full[port].is_floating_point():
            assert torch.equal(value, full[port])
            continue
        assert value.dtype == torch.bfloat16
        finite = full[port].isfinite()
        assert torch.equal(value.isfinite(), finite)
        value, exact = value[finite].float(), full[port][finite]  # noqa: PLW2901
        scale = exact.abs().max().item() if exact.numel() else 0.0
        torch.testing.assert_close(value, exact, rtol=0.02, atol=0.02 * scale)


@named("causal")
def test_a_causal_block_does_not_see_the_future(block: BlockType) -> None:
    """Changing the last position changes its output, but leaves the earlier ones exactly equal."""
    graph, model = made(block)
    inputs = drawn(graph)
    if "mask" in inputs and "T" in graph.inputs["mask"].axes:
        inputs["mask"][:, -1] = True
    name = sequence(graph)
    changed = {**inputs, name: inputs[name].clone()}
    changed[name][:, -1] = other(graph, name, inputs[name][:, -1])

    before, after = model(**inputs)["y"], model(**changed)["y"]

    assert torch.equal(before[:, :-1], after[:, :-1])
    if inputs[name].is_floating_point() and block.counts != "shifted":  # the last one leaves
        assert not torch.equal(before[:, -1], after[:, -1])


@pytest.mark.integration
@named("causal", "full")
def test_a_block_that_mixes_positions_says_so_with_reason(block: BlockType) -> None:
    """Changing one end changes the output beyond it; otherwise the block would be pointwise.

    If several positions are merged into one, the end is the last position of the first group.
    """
    graph, model = made(block)
    inputs = drawn(graph)
    if "mask" in inputs and "T" in " ".join(map(str, graph.inputs["mask"].axes)):
        several = "T" not in graph.inputs["mask"].axes  # inputs for each output
        inputs["mask"][:, slice(None) if several else -1] = True
    before = model(**inputs)["y"]
    reached = []
    first = max(1, inputs[sequence(graph)].size(1) // before.size(1)) - 1
    for end, others in ((first, slice(1, None)), (-1, slice(-1))):
        for changed in changed_at(graph, inputs, end):
            after = model(**changed)["y"]
            reached.append(not torch.equal(before[:, others], after[:, others]))

    assert any(reached)


def changed_at(graph: Graph, inputs: dict[str, Tensor], place: int) -> Iterator[dict[str, Tensor]]:
    """Yield inputs with another x or value at a position, and with every other id there."""
    if (x := inputs[mixed := sequence(graph)].clone()).dtype != torch.int64:
        x[:, place] = x[:, place] + 1.0 if x.is_floating_point() else ~x[:, place]
        yield {**inputs, mixed: x}
    for name, type_ in graph.inputs.items():
        if type_.kind == "ids" and "T" in type_.axes:
            size = int(str(type_.size))
            for shift in range(1, size):
                ids = inputs[name].clone()
                ids[:, place] = (ids[:, place] + shift) % size
                yield {**inputs, name: ids}


@pytest.mark.integration
@named("pointwise")
def test_a_pointwise_block_maps_each_position_by_itself(block: BlockType) -> None:
    """Changing one position changes only its own output, apart from rounding.

    Matrix products may group positions differently depending on their values.
    """
    graph, model = made(block)
    model = model.double()
    inputs = {n: v.double() if v.is_floating_point() else v for n, v in drawn(graph).items()}
    moving = {name for name, type_ in graph.inputs.items() if "T" in type_.axes}
    others, differs = [0, 1, 3, 4], []
    for shift in range(1, 11):
        changed = {name: value.clone() for name, value in inputs.items()}
        for name in moving:
            old = inputs[name][:, 2]
            ids = (old + shift * (name != "other")) % 11
            changed[name][:, 2] = old.cumsum(-1) + 1.0 if old.is_floating_point() else ids

        before, after = model(**inputs)["y"], model(**changed)["y"]

        torch.testing.assert_close(before[:, others], after[:, others], rtol=0, atol=1e-12)
        differs.append(not torch.equal(before[:, 2], after[:, 2]))
    assert any(differs) == (block.name != "constant_ids")


@pytest.mark.integration
@named("causal", "full", again=True)
def test_hops_is_the_smallest_number_that_connects_all_positions(block: BlockType) -> None:
    """Exactly `hops` times, and not fewer: the dependency matrix is multiplied."""
    length = 11
    graph, model = made(block)
    inputs = drawn(graph, {**SMALL, "T": length})
    for name, type_ in graph.inputs.items():
        if type_.kind in ("mask", "bias"):  # all positions may be attended to
            inputs[name] = torch.full_like(inputs[name], type_.kind == "mask")
    before = model(**inputs)["y"]
    reads_TS = torch.zeros(length, length, dtype=torch.bool)
    for read in range(length):
        name = sequence(graph)
        changed = {**inputs, name: inputs[name].clone()}
        old = changed[name][:, read]
        drawn_at_random = torch.randn(old.shape) if old.is_floating_point() else old
        changed[name][:, read] = other(graph, name, drawn_at_random)
        reads_TS[:, read] = (model(**changed)["y"] != before).any(0).view(length, -1).any(-1)

    hops, so_far_TS = 0, torch.eye(length, dtype=torch.bool)
    while True:
        farther_TS = (reads_TS.float() @ so_far_TS.float()) > 0
        if torch.equal(farther_TS | so_far_TS, so_far_TS):
            break
        hops, so_far_TS = hops + 1, farther_TS | so_far_TS

    to_one_side = torch.ones(length, length, dtype=torch.bool).tril()
    if (to_one_side & ~so_far_TS).any() and (to_one_side.T & ~so_far_TS).any():
        hops = 0  # never from every position to all on one side of it
    assert least_hops(part_of(graph), {**SMALL, "T": length}) == hops


def least_hops(part: Part, lengths: Mapping[str, int]) -> int:
    """Return the hops of a part, or the fewest hops of its slots."""
    if part.signature.behavior:
        return hops_of(part, lengths)
    mixing = [inner for inner in part.fill.values() if behavior(inner, "T") != "pointwise"]
    return min(filter(None, (least_hops(inner, lengths) for inner in mixing)), default=0)


@WITH_MASK
def test_padding_does_not_change_unmasked_results(block: BlockType) -> None:
    """The values at padded positions do not affect the outputs at the others."""
    graph, model = made(block)
    inputs = drawn(graph)
    axis = graph.inputs["mask"].axes[1]
    changed = dict(inputs)
    for name, type_ in graph.inputs.items():
        if type_.kind == "f" and type_.axes[1] == axis:
            padding = ~inputs["mask"]
            padding = padding[..., None] if len(type_.axes) > 2 else padding
            changed[name] = torch.where(padding, torch.tensor(50.0), inputs[name])

    outputs = model(**inputs)
    before, after = outputs["y"], model(**changed)["y"]

    whole = torch.ones(before.shape[:2], dtype=torch.bool)
    own = axis == "T" and "T" in graph.outputs["y"].axes
    unmasked = outputs.get("mask", inputs["mask"] if own else whole)
    torch.testing.assert_close(before[unmasked], after[unmasked])
    assert any(not torch.equal(changed[name], inputs[name]) for name in inputs)


@pytest.mark.integration
@WITH_DROPOUT
def test_dropout_works_in_training_only(block: BlockType) -> None:
    """In evaluation, dropout has no effect; in training, two runs differ."""
    graph, model = made(block, dropout=0.5)
    _, plain = made(block, dropout=0.0)
    inputs = drawn(graph)

    torch.testing.assert_close(model(**inputs), plain(**inputs), rtol=0, atol=0)

    model.train()
    first, second = model(**inputs)["y"], model(**inputs)["y"]
    assert not torch.equal(first, second)


@pytest.mark.integration
@pytest.mark.exact
@WITH_DROPOUT
def test_a_training_run_with_one_seed_drops_the_same_numbers(block: BlockType) -> None:
    """Dropout uses only torch's own generator."""
    graph, model = made(block, dropout=0.5)
    inputs = drawn(graph)
    model.train()

    torch.manual_seed(5)
    first = model(**inputs)["y"]
    torch.manual_seed(5)
    second = model(**inputs)["y"]

    assert torch.equal(first, second)


@pytest.mark.exact
@EVERY_CASE
def test_initialize_draws_every_weight_from_the_generator(block: BlockType) -> None:
    """Weights depend only on the seed, not on the previous contents of memory."""
    model = build_empty(graph_of(block))

    def weights(seed: int, rubbish: float) -> dict[str, Tensor]:
        with torch.no_grad():
            for weight in model.parameters():
                weight.fill_(rubbish)
        torch.rand(3)  # the global state must not matter
        initialize(model, seed)
        return {name: weight.detach().clone() for name, weight in model.named_parameters()}

    first, again, other = weights(1, float("nan")), weights(1, 7.0), weights(2, 7.0)

    torch.testing.assert_close(first, again, rtol=0, atol=0)
    drawn_at_random = [name for name, weight in first.items() if weight.unique().numel() > 2]
    assert [name for name in drawn_at_random if torch.equal(first[name], other[name])] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dynamo and Inductor, about themselves
@pytest.mark.parametrize("block", NODES, ids=lambda block: block.key)
def test_compiled_equals_eager(block: BlockType) -> None:
    """Outputs and gradients, traced by torch.compile with dynamic sizes."""
    graph, model = made(block)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    found: list[list[Tensor]] = []
    for run in (model, compiled):
        model.zero_grad()
        inputs = drawn(graph, {"B": 2, "T": 7, "S": 6})
        outputs = [value for value in run(**inputs).values() if value.is_floating_point()]
        total = sum(((value * value).sum() for value in outputs), torch.zeros(()))
        if total.requires_grad:
            total.backward()
        grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
        found.append([*(value.detach() for value in outputs), *(one.clone() for one in grads)])

    eager, traced = found
    assert len(eager) == len(traced)
    for one, other in zip(eager, traced, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    torch.compiler.reset()


def reads(part: Part) -> set[str]:
    """Return the axes along which a block reads other positions."""
    return {str(part.axes[name]) for name in part.signature.behavior if name in part.axes}


UNORDERED = {name: b for name, b in CASES.items() if not part_of(graph_of(b)).signature.ordered}


@pytest.mark.parametrize("block", UNORDERED.values(), ids=UNORDERED.keys())
def test_an_unordered_block_reads_positions_as_a_set(block: BlockType) -> None:
    """Permuting what it reads, with the masks, permutes or keeps its outputs."""
    graph, model = made(block)
    axes = reads(part_of(graph)) & {"S", "T"}
    given = drawn(graph)
    for axis in axes:
        order = torch.randperm(SMALL[axis], generator=torch.Generator().manual_seed(4))

        def permuted(values: Mapping[str, Tensor], types: Mapping[str, Any]) -> dict[str, Tensor]:
            """Return values with the positions of the axis in another order."""
            result = dict(values)
            for name in values:
                for dim, other_axis in enumerate(types[name].axes):
                    if other_axis == axis:  # noqa: B023
                        result[name] = result[name].index_select(dim, order)  # noqa: B023
            return result

        wanted = permuted(outputs_of(graph, model, given), graph.outputs)
        found = outputs_of(graph, model, permuted(given, graph.inputs))
        torch.testing.assert_close(found, wanted)


def outputs_of(graph: Graph, model: nn.Module, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs of a model by name."""
    made = model(**given)
    return made if isinstance(made, dict) else dict.fromkeys(graph.outputs, made)
