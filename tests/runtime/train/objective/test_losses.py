"""Losses of objectives, their weights over updates, and segments of documents."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.params import BEGIN
from weft.graphs.passes.fuse import fuse
from weft.runtime import api
from weft.runtime.api import Silent
from weft.runtime.checkpoint.curve import CurvePiece, values_at
from weft.runtime.codegen.build import build
from weft.runtime.data.plans.epochs import documents_of
from weft.runtime.data.plans.plan import generator
from weft.runtime.data.plans.segments import plan_segments
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.table import Batch
from weft.runtime.train.context import TrainingContext, training_context
from weft.runtime.train.device import RunDevice
from weft.runtime.train.distributed.sampler import MicroBatches, seed_of, stream_micro_batches
from weft.runtime.train.distributed.world import World
from weft.runtime.train.history import read
from weft.runtime.train.losses import Memory
from weft.runtime.train.measuring import losses_of
from weft.runtime.train.plan import load_run, plan_run
from weft.specs.findings import SpecError

from .conftest import (
    DECODER,
    INPUTS,
    MASKED,
    SECOND,
    SMALL,
    TWO_LOSSES,
    Writer,
    equal,
    pairs_objective,
    weights,
)
from .test_training import resumed

STILL = {"spec": "transformer-tiny", "params": {**SMALL, "dropout": 0.0}}
READER = {"spec": "gpt2", "params": {**DECODER, "dropout": 0.0}}
CPU = RunDevice(torch.device("cpu"), torch.float32, reason="a test")


def context_of(file: Path) -> TrainingContext:
    """Return the context of a run."""
    run, source = load_run(file)
    return training_context(plan_run(run, source), file.parent / "run", CPU, World(), Silent())


def first_update(context: TrainingContext, accumulate: int = 4) -> MicroBatches:
    """Return the micro-batches of the first update."""
    run = context.run
    return next(
        stream_micro_batches(
            context.corpus, run.batch, run.seed, accumulate=accumulate, share=(0, 1)
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


WEIGHTED = {
    **SECOND,
    "weighted": {
        "use": "elementwise@1",
        "in": {"rate": "rate", "loss": "divergence.loss"},
        "params": {"y": "rate * loss", "kind": "loss"},
    },
}
OUTPUTS = {"first": "cross_entropy.loss", "again": "cross_entropy_again.loss"}
ANNEALED = pairs_objective(
    WEIGHTED,
    {**OUTPUTS, "divergence": "weighted.y", "nll": "cross_entropy.nll"},
    inputs={**INPUTS, "rate": "f[]"},
)
"""R-Drop whose weight of the divergence is a value of the run."""
FIXED = pairs_objective(
    SECOND,
    {**OUTPUTS, "divergence": "divergence.loss", "nll": "cross_entropy.nll"},
    losses={"divergence": 0.25},
)
"""R-Drop with a fixed weight."""


def losses(folder: Path) -> list[float]:
    """Return the loss at each logged update of a run."""
    return [event["loss"] for event in read(folder) if "nll" in event]


def test_a_value_is_linear_between_two_updates() -> None:
    """By hand: constant, a quarter, half, and constant."""
    written = ({"from": 1.0, "over": 10}, {"to": 3.0, "over": 4})
    ramp = tuple(CurvePiece.model_validate(piece) for piece in written)
    updates = (1, 10, 11, 12, 14, 99, None)

    values = [values_at({"rate": ramp, "fixed": 2.5}, n, 100) for n in updates]

    assert [value["rate"] for value in values] == [1.0, 1.0, 1.5, 2.0, 3.0, 3.0, 3.0]
    assert {value["fixed"] for value in values} == {2.5}


@pytest.mark.integration
def test_a_constant_value_is_the_weight_of_a_loss(objective_run: Writer, tmp_path: Path) -> None:
    """The loss times 0.25 trains as the loss with the weight 0.25, item by item."""
    api.train(objective_run(FIXED), out=tmp_path / "fixed")
    result = api.train(objective_run(ANNEALED, values={"rate": 0.25}), out=tmp_path / "valued")

    assert result.finished
    assert len(losses(tmp_path / "fixed")) > 1
    assert losses(tmp_path / "valued") == pytest.approx(losses(tmp_path / "fixed"), rel=1e-6)


@pytest.mark.integration
def test_a_changing_value_resumes_with_the_same_bits(objective_run: Writer, tmp_path: Path) -> None:
    """It is a function of the update; and it changes the training."""
    changing = {"rate": [{"to": 2}]}
    straight, again = resumed(objective_run(ANNEALED, values=changing), tmp_path)
    api.train(objective_run(ANNEALED, values={"rate": 0}), out=tmp_path / "without")

    assert equal(weights(straight.checkpoint), weights(again.checkpoint))  # type: ignore[arg-type]
    assert losses(tmp_path / "straight") != losses(tmp_path / "without")


@pytest.mark.parametrize(
    ("values", "at", "problem"),
    [
        ({}, "/inputs/rate", "no column fills the input 'rate'"),
        ({"rate": 1, "rat": 2}, "/values/rat", "has no input 'rat'"),
        ({"rate": [{"from": 1, "to": 1}]}, "/values/rate/0/to", "1 in the whole piece"),
        ({"rate": [{"over": 50}, {"to": 2}]}, "/values/rate/1", "begins after update 50"),
        ({"rate": {"from": 1, "to": 2}}, "/values/rate", "must be a number"),
        ({"rate": 1, "source": 2}, "/values/source", "'source' is a column"),
        ({"rate": "0.5"}, "/values/rate", ""),
    ],
)
def test_wrong_values_are_refused_before_training(
    objective_run: Writer, tmp_path: Path, values: dict[str, Any], at: str, problem: str
) -> None:
    """With the place, and before anything is written."""
    file = objective_run(ANNEALED, values=values)

    with pytest.raises(SpecError) as error:
        api.train(file, out=tmp_path / "run")

    assert any(at in finding.at and problem in finding.problem for finding in error.value.findings)
    assert not (tmp_path / "run").exists()


PUBLISHED = Path(__file__).parents[4] / "examples/published"
OBJECTIVE = PUBLISHED / "segment-language-model.json"
SIZES = {"d_model": 8, "heads": 2, "d_ff": 8, "layers": 2, "dropout": 0.0}
MODEL = {"spec": "transformer-xl", "params": SIZES}
SEGMENTS_BEGIN, VOCAB, SIZE, MEMORY = 3, 12, 4, 6


def made(memory: int = MEMORY) -> tuple[Any, Memory]:
    """Return the module of the objective in float64, with large weights, and its memory."""
    spec = weft.load(OBJECTIVE, model=MODEL, vocab=VOCAB, memory=memory)
    module = weft.build(spec, seed=1).double()
    torch.manual_seed(1)
    for name, weight in module.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(weight, std=0.5)
    return module, Memory(spec.graph())


def segment(text: Tensor, rows: list[int], first: list[bool]) -> Batch:
    """Return a batch of rows [B, T]."""
    return Batch({"text": text}, np.array(rows), {}, first=np.array(first))


def scores(w: dict[str, Tensor], at: str, query: Tensor, keys: Tensor) -> Tensor:
    """Return the scores of the last T queries [T, 8] with S keys [S, 8], [2, T, S]."""
    found = torch.full((2, len(query), len(keys)), -math.inf, dtype=torch.float64)
    u, v = (w[f"model.decoder.0.attention.f.position.{n}_bias"] for n in ("content", "position"))
    angles = [[far / 10_000 ** (2 * k / 8) for k in range(4)] for far in range(len(keys))]
    encodings = [[*map(math.sin, row), *map(math.cos, row)] for row in angles]
    far = torch.tensor(encodings).double() @ w[f"{at}.position.distance.weight"].T
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        for i in range(len(query)):
            last = len(keys) - len(query) + i
            content = keys[: last + 1, part] @ (query[i, part] + u[head])
            place = far[: last + 1, part].flip(0) @ (query[i, part] + v[head])
            found[head, i, : last + 1] = (content + place) / 2
    return found


def layer(w: dict[str, Tensor], number: int, x: Tensor, memory: Tensor) -> Tensor:
    """Return the output [T, 8] of a layer, which reads its memory [M, 8] without a gradient."""
    at = f"model.decoder.{number}.attention"
    whole = torch.cat([memory.detach(), x])
    query, key, value = (
        one @ w[f"{at}.f.{name}.weight"].T
        for name, one in (("query", x), ("key", whole), ("value", whole))
    )
    weight = torch.softmax(scores(w, f"{at}.f", query, key), -1)
    heads = [weight[h] @ value[:, 4 * h : 4 * h + 4] for h in range(2)]
    y = x + torch.cat(heads, 1) @ w[f"{at}.f.out.weight"].T
    x = F.layer_norm(y, (8,), w[f"{at}.norm.weight"], w[f"{at}.norm.bias"])
    at = f"model.decoder.{number}.feed_forward"
    inner = torch.relu(x @ w[f"{at}.f.inner.weight"].T + w[f"{at}.f.inner.bias"])
    y = x + inner @ w[f"{at}.f.outer.weight"].T + w[f"{at}.f.outer.bias"]
    return F.layer_norm(y, (8,), w[f"{at}.norm.weight"], w[f"{at}.norm.bias"])


def reference(w: dict[str, Tensor], segments: list[Tensor]) -> Tensor:
    """Return the summed loss of the segments of one document, with a memory of 6 positions."""
    memories = [torch.zeros(0, 8).double() for _ in range(2)]
    last, loss = torch.tensor([SEGMENTS_BEGIN]), torch.zeros((), dtype=torch.float64)
    for ids in segments:
        x = w["model.embedding.weight"][torch.cat([last, ids[:-1]])] * math.sqrt(8)
        for number in range(2):
            own, memory = x, memories[number]
            x = layer(w, number, own, memory)
            memories[number] = torch.cat([memory, own])[-MEMORY:]
        logits = x @ w["model.embedding.weight"].T + w["model.head.bias"]
        loss = loss + F.cross_entropy(logits, ids, reduction="sum")
        last = ids[-1:]
    return loss


def test_three_segments_are_transformer_xl_in_losses_and_gradients() -> None:
    """The second row begins another document in the third segment; memory gives no gradient."""
    module, memory = made()
    text = torch.randint(4, VOCAB, (2, 3 * SIZE))
    parts = text.split(SIZE, 1)

    found = torch.zeros((), dtype=torch.float64)
    for turn, rows in enumerate(([0, 3], [1, 4], [2, 5])):
        batch = segment(parts[turn], rows, [turn == 0, turn in (0, 2)])
        found = found + memory.run(module, batch.inputs, batch)["loss"]
    found.backward()
    gradients = {name: one.grad for name, one in module.named_parameters()}
    w = {name: one.detach().clone().requires_grad_() for name, one in module.named_parameters()}
    wanted = reference(w, [part[0] for part in parts]) + reference(w, [one[1] for one in parts[:2]])
    wanted = wanted + reference(w, [parts[2][1]])
    wanted.backward()

    # The loss is computed in float32.
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0)
    expected = {name: one.grad for name, one in w.items()}
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-4)


def test_a_memory_of_the_whole_document_gives_the_losses_of_the_parallel_pass() -> None:
    """So the segments are steps of several positions; in a shorter memory they differ."""
    text = torch.randint(4, VOCAB, (1, 3 * SIZE))
    losses = {}
    for longest in (2 * SIZE, 2):
        module, memory = made(longest)
        batches = [segment(p, [n], [n == 0]) for n, p in enumerate(text.split(SIZE, 1))]
        with torch.no_grad():
            found = [memory.run(module, one.inputs, one)["nll"] for one in batches]
        losses[longest] = torch.stack(found).sum()

    whole = module(text=text)["nll"]
    torch.testing.assert_close(losses[2 * SIZE], whole)
    assert not torch.allclose(losses[2], whole)


def test_batches_continue_the_documents_of_the_batch_before() -> None:
    """Documents of 3, 1, 2 and 2 rows in two sequences, by hand."""
    starts = np.array([1, 0, 0, 1, 1, 0, 1, 0], dtype=bool)
    documents, settings = documents_of(starts), BatchSettings(tokens=2 * SIZE)

    plan = plan_segments(documents, SIZE, settings)
    shuffled = plan_segments(documents, SIZE, settings, generator(1, 0))

    assert [one.tolist() for one in plan] == [[0, 3], [1, 4], [2, 5], [6], [7]]
    assert sorted(np.concatenate(shuffled).tolist()) == list(range(8))
    before: list[int] = []
    for batch in shuffled:
        assert all(starts[row] or row - 1 in before for row in batch.tolist())
        before = batch.tolist()


def write(folder: Path, **changes: Any) -> Path:
    """Write documents of 3 to 13 words, and a run of them; return its file."""
    for split, count in (("train", 12), ("valid", 3)):
        texts = [" ".join(f"w{(n + k) % 7}" for k in range(3 + n % 11)) for n in range(count)]
        lines = [json.dumps({"text": text}) for text in texts]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    column = {"type": "text", "tokenizer": "words", "segment": SIZE}
    run = json.loads((PUBLISHED / "transformer-xl-run.json").read_text())
    run["objective"] = "segments.json"
    (folder / "segments.json").write_text(OBJECTIVE.read_text())
    (folder / "transformer-xl.json").write_text((PUBLISHED / "transformer-xl.json").read_text())
    run["params"] = {"model": {**MODEL, "params": SIZES | {"dropout": 0.1}}, "memory": MEMORY}
    run["data"] |= {"root": str(folder), "columns": {"text": column | changes.pop("column", {})}}
    run |= {
        "batch": {"tokens": 3 * SIZE},
        "updates": 6,
        "schedule": {"peak": 0.01},
    }
    run |= {"evaluate": {"every": 3, "best": "nll"}, "checkpoint": {"every": 3, "average": 0}}
    run |= {"accumulate": 2, "compile": "eager", "trackers": [], **changes}
    (folder / "run.json").write_text(json.dumps(run))
    return folder / "run.json"


@pytest.mark.slow
def test_a_resumed_run_continues_the_memory(tmp_path: Path) -> None:
    """Its weights are those of an undisturbed run, bit for bit; without its memory they differ."""
    file = write(tmp_path)
    straight = api.train(file, out=tmp_path / "straight")
    api.train(file, out=tmp_path / "halves", overrides={"updates": 3})
    stored = tmp_path / "halves/checkpoints/000003/memory.safetensors"
    assert stored.is_file()

    again = api.train(file, out=tmp_path / "halves", resume=True)

    assert straight.checkpoint is not None
    assert again.checkpoint is not None
    assert equal(weights(straight.checkpoint), weights(again.checkpoint))


@pytest.mark.slow
def test_a_trained_model_is_measured_on_documents_in_segments(tmp_path: Path) -> None:
    """The losses of `weft evaluate` are those of a validation, which is in segments too."""
    # Evaluation is in float32, and `auto` trains in bfloat16 where the processor is fast in it.
    result = api.train(write(tmp_path, precision="float32"), out=tmp_path / "out")
    assert result.best is not None
    history = [
        json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()
    ]
    valid = [one for one in history if one["type"] == "valid"]
    model = weft.open(result.best)
    rows = [json.loads(line) for line in (tmp_path / "valid.jsonl").read_text().splitlines()]

    found = losses_of(model, rows)

    assert found["nll"] == pytest.approx(min(one["nll"] for one in valid), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"column": {"segment": None}}, "/data/columns"),
        ({"objective": "language-model"}, "/data/columns/text/segment"),
        ({"padding": "unpadded"}, "/padding"),
        ({"without": ["kernels", "fuse"]}, "/without/1"),
        ({"activation_checkpointing": ["model.decoder.*"]}, "/activation_checkpointing"),
        ({"batch": {"tokens": 3}}, "/batch/tokens"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_segments_are_refused(
    tmp_path: Path, changes: dict[str, Any], at: str
) -> None:
    """Before anything is read."""
    if "objective" in changes:
        changes = {**changes, "params": {"model": MODEL}}
    run, source = load_run(write(tmp_path, **changes))

    assert at in {finding.at for finding in plan_run(run, source).findings}
