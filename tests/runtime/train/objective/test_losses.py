"""Tests of the losses of an objective: their means, weights, names and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.params import BEGIN
from weft.graphs.passes.fuse import fuse
from weft.runtime.api import Silent
from weft.runtime.codegen.build import build
from weft.runtime.data.settings import BatchSettings
from weft.runtime.train.context import TrainingContext, training_context
from weft.runtime.train.device import Place
from weft.runtime.train.distributed.sampler import MicroBatches, seed_of, stream_micro_batches
from weft.runtime.train.distributed.world import World
from weft.runtime.train.plan import load_run, plan_run

from .conftest import DECODER, MASKED, SMALL, TWO_LOSSES, Writer

pytestmark = pytest.mark.integration

STILL = {"spec": "transformer-tiny", "params": {**SMALL, "dropout": 0.0}}
READER = {"spec": "gpt2", "params": {**DECODER, "dropout": 0.0}}
CPU = Place(torch.device("cpu"), torch.float32, reason="a test")


def context_of(file: Path) -> TrainingContext:
    """Return the context of a run."""
    run, source = load_run(file)
    return training_context(plan_run(run, source), file.parent / "run", CPU, World(), Silent())


def first_update(context: TrainingContext, accumulate: int = 4) -> MicroBatches:
    """Return the micro-batches of the first update."""
    run = context.run
    return next(
        stream_micro_batches(
            context.corpus, run.batch, run.seed, accumulate=accumulate, at=(0, 0), share=(0, 1)
        )
    )


def gradients(context: TrainingContext, model: nn.Module, update: MicroBatches) -> dict[str, Any]:
    """Return the gradients of an update, as the trainer computes them, and its values."""
    losses = context.losses
    total = losses.total(model, update, World(), (1, 1), CPU.device)
    model.zero_grad(set_to_none=True)
    values = dict.fromkeys(("loss", *losses.reported), 0.0)
    for _, batch in update.batches:
        sums = losses.loss(model, batch)
        (sums.loss / total).backward()
        values["loss"] += float(sums.loss.detach() / total)
        for name in losses.reported:
            values[name] += float(sums.parts[name] / total)
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"values": values, "gradients": found}


def by_hand(model: Any, batches: list[dict[str, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the means of translation and reading over all tokens of all batches, in torch."""
    sums, counts = [[], []], [0, 0]
    for batch in batches:
        source, target = batch["source"], batch["target"]
        before = F.pad(target, (1, 0), value=BEGIN)[:, :-1]
        logits = model.model(source=source, source_mask=source != 0, target=before)["logits"]
        text = F.pad(source, (1, 0), value=BEGIN)[:, :-1]
        read = model.reader(tokens=text)["logits"]
        for place, (scores, labels) in enumerate(((logits, target), (read, source))):
            sums[place].append(
                F.cross_entropy(
                    scores.flatten(0, 1), labels.flatten(), ignore_index=0, reduction="sum"
                )
            )
            counts[place] += int((labels != 0).sum())
    left, right = (torch.stack(each).sum() for each in sums)
    return left / counts[0], right / counts[1]


def value(loss: Tensor) -> Any:
    """Return a number to compare with, to rounding."""
    return pytest.approx(float(loss.detach()), rel=1e-5)


def test_the_gradient_of_unequal_micro_batches_is_that_of_the_mean_over_all_items(
    objective_run: Writer,
) -> None:
    """Two losses with different numbers of items each have their own mean, by hand in torch."""
    file = objective_run(TWO_LOSSES, params={"model": STILL, "reader": READER})
    context = context_of(file)
    model = build(context.graph, seed=1)
    update = first_update(context)
    sizes = [dict(batch.tokens) for _, batch in update.batches]
    assert len({tuple(size.values()) for size in sizes}) > 1

    found = gradients(context, model, update)
    model.zero_grad(set_to_none=True)
    first, second = by_hand(model, [batch.inputs for _, batch in update.batches])
    (first + 0.25 * second).backward()

    assert found["values"]["translation"] == value(first)
    assert found["values"]["reading"] == value(second)
    assert found["values"]["loss"] == value(first + 0.25 * second)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found["gradients"][name], parameter.grad, atol=1e-6, rtol=1e-4)


def test_one_of_several_losses_that_is_called_loss_has_the_name_of_its_node(
    objective_run: Writer,
) -> None:
    """As in an objective that extends `translation` and adds a loss; `loss` is their sum."""
    outputs = {**TWO_LOSSES["outputs"], "loss": "cross_entropy.loss"}
    del outputs["translation"]
    run = {"params": {"model": STILL, "reader": READER}}
    context = context_of(objective_run({**TWO_LOSSES, "outputs": outputs}, **run))
    model = build(context.graph, seed=1)
    update = first_update(context)

    values = gradients(context, model, update)["values"]
    measured = context.losses.measured(model.eval(), [b for _, b in update.batches], CPU.device)

    first, second = by_hand(model, [batch.inputs for _, batch in update.batches])
    assert values["cross_entropy"] == value(first)
    assert values["loss"] == value(first + 0.25 * second)
    assert measured["cross_entropy"] == value(first)
    assert measured["loss"] == value(first + 0.25 * second)


def test_losses_fused_with_the_output_projection_agree_with_plain_ones(
    objective_run: Writer,
) -> None:
    """Both losses of both models are fused; values and gradients are the same without."""
    file = objective_run(TWO_LOSSES, params={"model": STILL, "reader": READER})
    context = context_of(file)
    update, changed = first_update(context), fuse(context.graph)
    assert changed.execution.fused.keys() == {"cross_entropy", "reading"}

    fused = gradients(context, build(changed, seed=1), update)
    plain = gradients(context, build(context.graph, seed=1), update)

    assert fused["values"] == pytest.approx(plain["values"], rel=1e-6)
    for name, gradient in plain["gradients"].items():
        torch.testing.assert_close(fused["gradients"][name], gradient, atol=1e-6, rtol=1e-4)


def test_an_update_without_items_of_the_first_loss_trains_the_others(
    objective_run: Writer,
) -> None:
    """Its own gradient is zero, and the other loss has its mean; also with counts on a device."""
    context = context_of(objective_run(TWO_LOSSES, params={"model": STILL, "reader": READER}))
    update, losses = first_update(context), context.losses
    for _, batch in update.batches:
        batch.inputs["source"].zero_()
    model = build(context.graph, seed=1)
    found = gradients(context, model, update)

    assert losses.losses[0] == "reading"
    assert found["values"]["reading"] == 0.0
    assert not any(g.any() for name, g in found["gradients"].items() if name.startswith("reader."))
    model.zero_grad(set_to_none=True)
    translation, _ = by_hand(model, [batch.inputs for _, batch in update.batches])
    translation.backward()
    assert found["values"]["translation"] == value(translation)
    for name, parameter in model.named_parameters():
        if name.startswith("model."):
            wanted = parameter.grad
            torch.testing.assert_close(found["gradients"][name], wanted, atol=1e-6, rtol=1e-4)
    counts = torch.tensor([0.0, 8.0], dtype=torch.float64).unbind()
    losses._set_ratios(counts, torch.ones((), dtype=torch.float64))
    assert float(losses._ratios["translation"]) == 1 / 8


def test_a_score_and_a_loss_of_weight_0_do_not_train(objective_run: Writer) -> None:
    """Both are reported, and the weights of a model that only they read get no gradient."""
    still = {**TWO_LOSSES, "losses": {"reading": 0.0}}
    context = context_of(objective_run(still, params={"model": STILL, "reader": READER}))
    model, update = build(context.graph, seed=1), first_update(context)

    found = gradients(context, model, update)

    assert context.losses.reported == ("reading", "translation", "reading_nll")
    assert found["values"]["loss"] == found["values"]["translation"]
    assert found["values"]["reading"] > 1.0
    # Without label smoothing a loss is its negative log-likelihood.
    assert found["values"]["reading_nll"] == pytest.approx(found["values"]["reading"], rel=1e-5)
    reader = [g for name, g in found["gradients"].items() if name.startswith("reader.")]
    assert all(not gradient.any() for gradient in reader)


def test_the_items_of_a_loss_are_those_that_its_noise_draws(objective_run: Writer) -> None:
    """`total` counts the tokens that `loss` masks, which differ between updates."""
    params = {"model": {"spec": "gpt2", "params": DECODER}}
    context = context_of(objective_run(MASKED, params=params, columns={"text": "src"}))
    model, update = build(context.graph, seed=1), first_update(context)
    losses: Any = context.losses
    masks: list[Tensor] = []
    model.get_submodule("noise").register_forward_hook(
        lambda _, __, outputs: masks.append(outputs[1])
    )

    counts = []
    for number in (1, 2):
        masks.clear()
        total = losses.total(model, update, World(), (1, number), CPU.device)
        drawn = [mask.clone() for mask in masks]
        assert total == sum(int(mask.sum()) for mask in masks)
        masks.clear()
        for which, batch in update.batches:
            torch.manual_seed(seed_of(1, number, which))
            losses.loss(model, batch)
        assert all(torch.equal(*pair) for pair in zip(drawn, masks, strict=True))
        counts.append(total)
    assert counts[0] != counts[1]


def test_validation_measures_the_mean_of_each_loss_over_all_rows(objective_run: Writer) -> None:
    """Batches of several sizes give the same means as the definition, with losses not fused."""
    file = objective_run(TWO_LOSSES, params={"model": STILL, "reader": READER})
    context = context_of(file)
    model = build(context.graph, seed=1).eval()
    losses: Any = context.losses
    table: Any = context.corpus
    batches = list(table.in_order(BatchSettings(tokens=60)))

    found = losses.measured(model, batches, CPU.device)

    with torch.no_grad():
        first, second = by_hand(model, [batch.inputs for batch in batches])
    assert len(batches) > 1
    assert found["translation"] == value(first)
    assert found["reading"] == found["reading_nll"] == value(second)
    assert found["loss"] == value(first + 0.25 * second)
