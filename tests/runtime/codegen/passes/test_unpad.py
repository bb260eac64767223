"""Tests of unpadding: training gives the results of padded training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import weft
from torch import Tensor, nn
from weft.blocks.kernels import attention_backends as cores
from weft.blocks.kernels import unpad as unpad_kernels
from weft.blocks.kernels.attention_backends import varlen_unpadded
from weft.blocks.kernels.unpad import (
    _first,
    non_padding,
    rows_of,
    with_padding,
    without_padding,
)
from weft.blocks.registry import registry
from weft.graphs.ir.execution import KernelChoice, UnpadPlan
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.value_type import ValueType, evaluate
from weft.graphs.passes.checkpoint import checkpoint_activations
from weft.graphs.passes.objective import counted_inputs
from weft.graphs.passes.pipeline import PassSettings, after
from weft.graphs.passes.unpad import plan_unpad, unpad
from weft.runtime import api
from weft.runtime.codegen.build import build
from weft.runtime.data.plans.planning import DataPosition
from weft.runtime.data.settings import BatchSettings
from weft.runtime.spec.check import graph_of
from weft.runtime.train.context import with_prepared
from weft.runtime.train.distributed.sampler import MicroBatches
from weft.runtime.train.distributed.world import World
from weft.runtime.train.losses import ObjectiveLosses
from weft.runtime.train.passes import padding_of
from weft.runtime.train.plan import plan_run
from weft.runtime.train.run import Run
from weft.specs.findings import InputError
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

from ...entries import ENTRIES, few_fast, small
from ...train.objective.conftest import MASKED, R_DROP

ROWS, LENGTH = 3, 8


def models_of(*graphs: Graph) -> list[Any]:
    """Return models with equal weights, in double precision and in training without dropout."""
    found = []
    for made in graphs:
        model = build(made).double().train()
        generator = torch.Generator().manual_seed(1)
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.data.add_(0.1 * noise)
        for module in model.modules():
            for chance in ("dropout", "drop_path"):
                if isinstance(getattr(module, chance, None), float):
                    setattr(module, chance, 0.0)
        found.append(model)
    return found


def batch_of(name: str, plan: UnpadPlan) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return inputs whose rows end in padding, and the mask of each axis."""
    made, generator = small(name), torch.Generator().manual_seed(2)
    sizes = {a: ROWS if kind == "batch" else LENGTH for a, kind in made.spec.axes.items()}
    sizes |= ENTRIES[name].get("sizes", {})
    sizes |= {a: ROWS for a, kind in made.spec.axes.items() if kind == "batch"}
    lengths = {axis: torch.tensor([[n - 1], [n], [n - 3]]) for axis, n in sizes.items()}
    mask = {axis: torch.arange(sizes[axis]) < lengths[axis] for axis in sizes}

    def value(type_: ValueType) -> Tensor:
        shape = [evaluate(axis, sizes) for axis in type_.axes]
        if type_.kind == "ids":
            return torch.randint(1, evaluate(type_.size or 0, {}), shape, generator=generator)
        if type_.kind == "mask":
            full = (torch.arange(shape[-1]) < shape[-1] - 1).expand(shape)
            return mask.get(str(type_.axes[-1]), full) if len(shape) == 2 else full
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    inputs = {port: value(type_) for port, type_ in made.inputs.items()}
    for port, place in plan.boundary.inputs.items():
        if made.inputs[port].kind == "ids":
            inputs[port] = inputs[port].masked_fill(~mask[place.axis], 0)
    return inputs, mask


def zero_padding(
    type_: ValueType, value: Tensor, *, plan: UnpadPlan, mask: Mapping[str, Tensor]
) -> Tensor:
    """Return an output with zeros at padding."""
    for dim, axis in enumerate(type_.axes):
        if axis in plan.axes:
            shape = [ROWS, *[1] * (value.dim() - 1)]
            shape[dim] = mask[str(axis)].size(1)
            value = value * mask[str(axis)].view(shape)
    return value


def learnt(
    model: nn.Module, made: Graph, inputs: Mapping[str, Tensor], cleaned: Callable[..., Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
    """Return the outputs of a model, and the gradient of each weight."""
    outputs = {p: cleaned(made.outputs[p], value) for p, value in model(**inputs).items()}
    sum((value.square().sum() for value in outputs.values()), torch.zeros(())).backward()
    return outputs, {path: weight.grad for path, weight in model.named_parameters()}


@pytest.mark.integration
@few_fast()
def test_outputs_and_gradients_equal_those_of_padded_rows(name: str) -> None:
    """Every shipped spec agrees at non-padding tokens, or is refused with its reason."""
    made = small(name)
    plan = plan_unpad(made)
    if not plan.axes:
        with pytest.raises(
            InputError, match=r"cannot be unpadded: .*(a loss|no input|without a mask)"
        ):
            unpad(made)
        return
    plain, on_packed = models_of(made, unpad(made))
    inputs, mask = batch_of(name, plan)

    cleaned = functools.partial(zero_padding, plan=plan, mask=mask)
    found, expected = (learnt(model, made, inputs, cleaned) for model in (on_packed, plain))

    rows = on_packed.batched.rows
    assert {axis: len(rows[axis].at) for axis in rows} == {
        axis: int(mask[axis].sum()) for axis in plan.axes
    }
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    on_packed.eval()
    with torch.no_grad():
        torch.testing.assert_close(dict(on_packed(**inputs)), dict(plain.eval()(**inputs)))


def test_only_attention_sees_padding() -> None:
    """All linear maps and norms of the Transformer read `[R, D]`, also with `weft.unpad`."""
    made = small("transformer-base")
    (model,) = models_of(weft.unpad(made))
    assert model.batched.rows == {}
    inputs, mask = batch_of("transformer-base", plan_unpad(made))
    ranks: dict[str, int] = {}
    for path, module in model.named_modules():
        if not list(module.children()) and list(module.parameters(recurse=False)):
            module.register_forward_pre_hook(
                lambda _, args, named, path=path: ranks.update(
                    {path: [*args, *named.values()][0].dim()}
                ),
                with_kwargs=True,
            )

    model(**inputs)

    assert {rank for path, rank in ranks.items() if "embedding" in path} == {1}
    assert {rank for path, rank in ranks.items() if "embedding" not in path} == {2}
    assert len(model.batched.rows["S"].at) == int(mask["S"].sum()) < mask["S"].numel()


def free_blocks() -> list[str]:
    """Return the blocks whose ports are all `[... d]`, so that they take unpadded rows.

    Noise has such ports too, but depends on the shape of the batch, and says so.
    """
    found = []
    for block in registry():
        signature = block.signature(block.params(**block.example), frozenset(block.example_inputs))
        ports = (*signature.inputs, *signature.outputs)
        free = all(port.type.axes[:1] == ("...",) for port in ports)
        if free and not signature.slots and not signature.by_row and block.typed is None:
            found.append(block.key)
    return found


@pytest.mark.parametrize("key", free_blocks())
def test_a_block_that_takes_any_axes_does_not_look_at_them(key: str) -> None:
    """Unpadding relies on the contract that `...` stands for any leading axes."""
    block = registry().get(key)
    assert block is not None
    signature = block.signature(block.params(**block.example), frozenset(block.example_inputs))
    wires = {port: port for port in block.example_inputs}
    form = {
        "format": 1,
        "name": "alone",
        "axes": {"B": "batch", "T": "time"},
        "inputs": dict(block.example_inputs),
        "outputs": {port.name: f"one.{port.name}" for port in signature.outputs},
        "nodes": {"one": {"use": key, "params": dict(block.example), "in": wires}},
    }
    made = graph_of(loaded(form))
    (model,) = models_of(made)
    own = {port.name: len(port.type.axes) - 1 for port in (*signature.inputs, *signature.outputs)}
    generator = torch.Generator().manual_seed(4)
    sizes = {"B": ROWS, "T": LENGTH}
    rows: dict[str, Tensor] = {}
    for port, type_ in made.inputs.items():
        shape = [evaluate(axis, sizes) for axis in type_.axes]
        if type_.kind == "ids":
            rows[port] = torch.randint(evaluate(type_.size or 0, {}), shape, generator=generator)
        elif type_.kind == "mask":
            rows[port] = torch.rand(shape, generator=generator) < 0.7
        else:
            rows[port] = torch.randn(shape, generator=generator, dtype=torch.float64)

    def flat(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values with all axes of `...` flattened into one."""
        return {p: value.flatten(0, value.dim() - own[p] - 1) for p, value in values.items()}

    torch.testing.assert_close(dict(model.forward(**flat(rows))), flat(model(**rows)))


def test_rows_are_unpadded_and_padded_again() -> None:
    """By hand: two rows of three positions, four of them non-padding."""
    mask = torch.tensor([[True, True, False], [True, False, True]])
    rows = rows_of(mask)
    value = torch.arange(12.0).view(2, 3, 2).requires_grad_()

    taken = without_padding(value, rows)
    back = with_padding(taken, rows)
    (back * torch.arange(1.0, 13.0).view(2, 3, 2)).sum().backward()

    assert rows.at.tolist() == [0, 1, 3, 5]
    assert taken.tolist() == [[0, 1], [2, 3], [6, 7], [10, 11]]
    assert back.tolist() == [[[0, 1], [2, 3], [0, 0]], [[6, 7], [0, 0], [10, 11]]]
    assert value.grad is not None
    assert value.grad.tolist() == [[[1, 2], [3, 4], [0, 0]], [[7, 8], [0, 0], [11, 12]]]
    deeper = value.detach()[None].expand(5, 2, 3, 2)
    assert torch.equal(without_padding(deeper, rows, 1), taken.detach().expand(5, 4, 2))
    assert torch.equal(
        with_padding(without_padding(deeper, rows, 1), rows, 1), back.detach().expand(5, 2, 3, 2)
    )


def test_positions_are_found_with_a_known_count() -> None:
    """With a known count nothing has to be read from the device."""
    mask = torch.rand(400, generator=torch.Generator().manual_seed(1)) < 0.6

    assert _first(mask, int(mask.sum())).tolist() == mask.nonzero()[:, 0].tolist()


def test_positions_up_to_the_last_non_padding_token_count() -> None:
    """The first position is never masked: some models begin their outputs with the padding id."""
    ids = torch.tensor([[0, 7, 0, 8, 0, 0], [0, 0, 0, 0, 0, 0], [5, 6, 7, 8, 9, 4]])

    assert non_padding(ids, 0).int().tolist() == [
        [1, 1, 1, 1, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1],
    ]


class Lengths:
    """A table of which only the lengths are read."""

    lengths: ClassVar = {"source": np.array([2, 4]), "target": np.array([2, 2])}
    samples = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return 2

    def sampled_lengths(self, rows: Any, noise: tuple[int, int]) -> dict[str, Any]:
        """Return the lengths without sampling."""
        assert noise == (1, 0)
        return {name: each[rows] for name, each in self.lengths.items()}


class Sampled(Lengths):
    """A table whose sampling makes the second target longer."""

    samples = True

    def sampled_lengths(self, rows: Any, noise: tuple[int, int]) -> dict[str, Any]:
        """Return other lengths."""
        found = super().sampled_lengths(rows, noise)
        return {**found, "target": np.array([2, 7])[rows]}


def test_how_much_is_padding_is_known_before_the_training() -> None:
    """By hand: with end tokens, one batch has rows of 2 and 4, and of 2 and 2."""
    table: Any = Lengths()

    assert padding_of(table, BatchSettings(tokens=8), 1) == pytest.approx(2 / 12)


def test_sub_word_sampling_makes_padding() -> None:
    """By hand: one batch has rows of 2 and 4, and of 2 and 7, in 8 + 14 positions."""
    table: Any = Sampled()

    assert padding_of(table, BatchSettings(tokens=8), 1) == pytest.approx(7 / 22)


def test_checkpointed_layers_get_the_same_unpadded_rows() -> None:
    """With activation checkpointing the backward pass runs layers on the same unpadded rows."""
    made = small("transformer-base")
    plan = plan_unpad(made)
    inputs, mask = batch_of("transformer-base", plan)
    unpadded = unpad(made)
    selections = ["encoder.*", "**/f[use=attention@1]"]
    plain, again = models_of(unpadded, checkpoint_activations(unpadded, selections))

    cleaned = functools.partial(zero_padding, plan=plan, mask=mask)
    torch.testing.assert_close(
        learnt(again, made, inputs, cleaned), learnt(plain, made, inputs, cleaned)
    )


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    read_starts: Tensor,
    longest: int,
    longest_read: int,
    *,
    scale: float | None,
    window_size: tuple[int, int],
) -> Tensor:
    """Compute as documented of torch's kernel for CUDA: the attention of each row."""
    assert int(starts.diff().max()) <= longest
    assert int(read_starts.diff().max()) <= longest_read
    found = torch.empty_like(query)
    for row in range(len(starts) - 1):
        rows = slice(int(starts[row]), int(starts[row + 1]))
        there = slice(int(read_starts[row]), int(read_starts[row + 1]))
        heads = (x.transpose(0, 1) for x in (query[rows], key[there], value[there]))
        found[rows] = torch.nn.functional.scaled_dot_product_attention(
            *heads, is_causal=window_size == (-1, 0), scale=scale
        ).transpose(0, 1)
    return found


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "all"])
def test_the_variable_length_kernel_gets_the_row_offsets(
    monkeypatch: pytest.MonkeyPatch, *, causal: bool
) -> None:
    """Called as documented, the kernel gives the attention of each row."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    monkeypatch.setattr(cores, "_varlen_runs", lambda *_, **__: True)
    assert varlen_unpadded is cores.varlen_unpadded
    name = "transformer-gqa" if causal else "transformer-headgates"
    made = small(name)
    plan = plan_unpad(made)
    inputs, mask = batch_of(name, plan)
    varlen_kernel = PassSettings(kernels=KernelChoice("torch", {"*": "varlen"}))
    plain, on_packed = models_of(made, after(made, varlen_kernel))

    cleaned = functools.partial(zero_padding, plan=plan, mask=mask)
    found = learnt(on_packed, made, inputs, cleaned)
    monkeypatch.undo()

    torch.testing.assert_close(found, learnt(plain, made, inputs, cleaned), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("free", [True, False], ids=["cpu", "accelerator"])
def test_an_objective_trains_unpadded_with_counts_of_the_data(
    free: bool, toy_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an accelerator the counts are trusted; a wrong one reads out of range."""
    monkeypatch.setattr(unpad_kernels, "counting_is_free", lambda _: free)
    counts: list[int | None] = []

    def recorded(mask: Tensor, count: int | None) -> Any:
        counts.append(count)
        return rows_of(mask, count)

    monkeypatch.setattr("weft.blocks.kernels.unpad.rows_of", recorded)
    run = toy_run(params={"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.0})
    plan = plan_run(run, "")
    prepared = api.prepare_run(plan, tmp_path / "run")
    made = with_prepared(plan.required()[1], prepared).graph
    batch = prepared.train.batch(np.arange(12))
    gradients, losses = [], []
    for graph in (made, unpad(made)):
        model = build(graph, seed=1).double().train()
        sums_of = ObjectiveLosses(made, 0.0)
        update = MicroBatches(DataPosition(), ((0, batch),), 1, {})
        sums_of.total(model, update, World(), (1, 1), torch.device("cpu"))
        loss = sums_of.loss(model, batch).loss
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad for name, p in model.named_parameters()})

    target = batch.inputs["target"]
    lengths = (target != 0).sum(1).tolist()
    assert counts == [
        int((batch.inputs["source"] != 0).sum()),
        sum(min(length + 1, max(lengths)) for length in lengths),
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    torch.testing.assert_close(gradients[1], gradients[0])


def test_positions_that_the_data_do_not_tell_are_counted() -> None:
    """Noise may change ids, and a model that runs twice reads other rows the second time."""
    twice = graph_of(loaded(R_DROP))
    masked = graph_of(loaded(MASKED))
    translation = graph_of(load(str(shipped_names("objectives")["translation"])))

    assert counted_inputs(twice) == {}
    assert counted_inputs(masked) == {"model": {}}
    assert counted_inputs(translation) == {
        "model": {"source_mask": ("source", False), "target": ("target", True)}
    }


def test_counts_are_used_for_one_forward_only() -> None:
    """The next batch has others."""
    made = small("transformer-base")
    (model,) = models_of(unpad(made))
    inputs, mask = batch_of("transformer-base", plan_unpad(made))
    model.batched.expect({"source_mask": int(mask["S"].sum())})
    model(**inputs)

    model(**{**inputs, "source_mask": torch.ones_like(inputs["source_mask"])})

    assert len(model.batched.rows["S"].at) == mask["S"].numel()
    model.batched.expect({"source_mask": 1})
    with pytest.raises(ValueError, match="expected 1 non-padding tokens"):
        model(**inputs)


def test_an_axis_stays_padded_where_counting_would_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an accelerator without a count: the results are the same, and nothing waits."""
    made = small("transformer-base")
    plan = plan_unpad(made)
    plain, model = models_of(made, unpad(made))
    inputs, mask = batch_of("transformer-base", plan)
    monkeypatch.setattr(unpad_kernels, "counting_is_free", lambda _: False)
    cleaned = functools.partial(zero_padding, plan=plan, mask=mask)
    expected = learnt(plain, made, inputs, cleaned)

    for counts in ({}, {"source_mask": int(mask["S"].sum())}):
        model.zero_grad()
        model.batched.expect(counts)
        found = learnt(model, made, inputs, cleaned)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
        assert (model.batched.rows["S"] is None, model.batched.rows["T"]) == (not counts, None)


def test_a_wrong_count_is_noticed_where_counting_is_free() -> None:
    """On an accelerator it would read other positions, without an error."""
    with pytest.raises(ValueError, match="expected 3 non-padding tokens, found 2"):
        rows_of(torch.tensor([[True, True, False]]), 3)
