"""Losses and gradients of objectives with shared weights, against the same written with torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.data.plans.planning import DataPosition
from weft.runtime.data.table import Batch
from weft.runtime.spec.check import graph_of, with_blocks
from weft.runtime.train.distributed.sampler import MicroBatches, seed_of
from weft.runtime.train.distributed.world import World
from weft.runtime.train.losses import ObjectiveLosses
from weft.specs.reader import shipped_names

VOCAB, PAD, BEGIN = 14, 0, 3
SMALL = {"d_model": 16, "heads": 2, "d_ff": 32}
CPU = torch.device("cpu")
SEEDS = (1, 2)
"""Seed of the run, and number of the update."""


def pair(dropout: float = 0.0, layers: int = 1) -> dict[str, Any]:
    """Return a small model of translation, as a value of a param."""
    params = {**SMALL, "layers": layers, "dropout": dropout}
    return {"spec": "transformer-tiny", "params": params}


def single(spec: str, **params: Any) -> dict[str, Any]:
    """Return a small model of one sequence, as a value of a param."""
    given = {**SMALL, "layers": 1, "dropout": 0.0, "attention_dropout": 0.0, **params}
    return {"spec": spec, "params": {**given, "max_length": 16}}


def objective(name: str, **params: Any) -> tuple[Graph, Any]:
    """Return the graph of a shipped objective and its module in training mode."""
    found = with_blocks(str(shipped_names("objectives")[name]))
    sizes: dict[str, Any] = {
        size: VOCAB for size in ("source_vocab", "vocab") if size in found.recovered.params
    }
    graph = graph_of(replace(found, overrides={**sizes, **params}))
    return graph, build(graph).train()


def texts(rows: int, longest: int, seed: int = 0) -> Tensor:
    """Return random ids with an end token and padding."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCAB, (rows, longest), generator=generator)
    for row in range(rows):
        end = longest - 1 - row % 3
        ids[row, end], ids[row, end + 1 :] = 1, PAD
    return ids


def trained(
    graph: Graph, module: nn.Module, batches: list[dict[str, Tensor]]
) -> tuple[float, dict[str, Tensor]]:
    """Return the mean loss of an update of several micro-batches, and its gradients."""
    losses = ObjectiveLosses(graph, 0.0)
    made = [
        Batch(inputs, np.arange(100 * n, 100 * n + len(next(iter(inputs.values())))), {})
        for n, inputs in enumerate(batches)
    ]
    update = MicroBatches(DataPosition(), tuple(enumerate(made)), len(made), {})
    count = losses.total(module, update, World(), SEEDS, CPU)
    module.zero_grad()
    total = 0.0
    for number, batch in enumerate(made):
        torch.manual_seed(seed_of(*SEEDS, number))
        loss = losses.loss(module, batch).loss / count
        loss.backward()
        total += float(loss.detach())
    return total, gradients(module)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Return the gradients by path."""
    return {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}


def assert_same(
    found: tuple[float, Mapping[str, Tensor]], module: nn.Module, wanted: Tensor
) -> None:
    """Compare a loss and its gradients with a loss by hand, which is differentiated here."""
    module.zero_grad()
    wanted.backward()
    assert found[0] == pytest.approx(float(wanted.detach()), rel=1e-5)
    by_hand = gradients(module)
    assert by_hand.keys() == found[1].keys()
    for path, gradient in by_hand.items():
        torch.testing.assert_close(found[1][path], gradient, rtol=1e-4, atol=1e-6, msg=path)


def begun(target: Tensor) -> Tensor:
    """Return the target shifted right."""
    return torch.cat([torch.full_like(target[:, :1], BEGIN), target[:, :-1]], 1)


def mean_nll(logits: Tensor, labels: Tensor, smoothing: float = 0.1) -> Tensor:
    """Return the label-smoothed cross-entropy per token."""
    flat = labels.masked_fill(labels == PAD, -100).flatten()
    return F.cross_entropy(logits.flatten(0, 1), flat, label_smoothing=smoothing)


def divergence(p: Tensor, q: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of KL(p || q) over the positions of a mask, of two logits."""
    each = F.kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="none", log_target=True)
    return each.sum(-1)[mask].mean()


def test_r_drop_equals_two_passes_by_hand() -> None:
    """With dropout: both passes draw from one generator, so their masks differ."""
    graph, module = objective("r-drop-translation", model=pair(dropout=0.2), alpha=5.0)
    source, target = texts(4, 6), texts(4, 7, seed=1)
    found = trained(graph, module, [{"source": source, "target": target}])

    torch.manual_seed(seed_of(*SEEDS, 0))
    one, other = (
        module.model(source=source, source_mask=source != PAD, target=begun(target))["logits"]
        for _ in range(2)
    )
    mask = target != PAD
    between = 0.5 * (divergence(one, other, mask) + divergence(other, one, mask))
    assert float(between.detach()) > 1e-4
    assert_same(found, module, mean_nll(one, target) + mean_nll(other, target) + 5.0 * between)


def test_multi_task_adds_the_language_model_of_an_empty_source() -> None:
    """Its gradient reaches encoder and decoder, which both tasks share."""
    graph, module = objective("multi-task", model=pair(), language_weight=0.5)
    source, target = texts(4, 6), texts(4, 7, seed=1)
    found = trained(graph, module, [{"source": source, "target": target}])

    empty = torch.ones_like(source[:, :1])
    losses = [
        mean_nll(
            module.model(source=given, source_mask=given != PAD, target=begun(target))["logits"],
            target,
        )
        for given in (source, empty)
    ]
    assert_same(found, module, losses[0] + 0.5 * losses[1])


def test_distillation_trains_only_the_student() -> None:
    """The teacher has no dropout and no gradient; the divergence is scaled by temperature^2."""
    graph, module = objective("distillation", model=pair(), teacher=pair(dropout=0.5, layers=2))
    source, target = texts(4, 6), texts(4, 7, seed=1)
    found = trained(graph, module, [{"source": source, "target": target}])

    given = {"source": source, "source_mask": source != PAD, "target": begun(target)}
    student = module.model(**given)["logits"]
    with torch.no_grad():
        teacher = module.teacher.eval()(**given)["logits"]
    imitation = 4.0 * divergence(teacher / 2.0, student / 2.0, target != PAD)
    assert not any(path.startswith("teacher") for path in found[1])
    assert_same(found, module, 0.5 * mean_nll(student, target) + 0.5 * imitation)


def test_the_embedding_of_electra_learns_from_both_losses() -> None:
    """No gradient passes through the drawn tokens to the generator."""
    graph, module = objective(
        "replaced-token-detection",
        model=single("electra"),
        generator=single("electra-generator", d_embedding=16),
        rate=0.4,
    )
    text = texts(6, 8)
    found = trained(graph, module, [{"text": text}])

    torch.manual_seed(seed_of(*SEEDS, 0))
    mask = text != PAD
    masked, selected = module.masked(text)
    guessed = module.generator(tokens=masked, mask=mask)["logits"]
    filled = module.filled(guessed, text, selected)
    scores = module.model(tokens=filled, mask=mask)["logits"][..., 0]
    detection = F.binary_cross_entropy_with_logits(scores[mask], (filled == text)[mask].float())
    assert module.generator.embedding.weight is module.model.embedding.weight
    assert int((filled != text).sum()) > 0
    assert_same(
        found, module, F.cross_entropy(guessed[selected], text[selected]) + 50.0 * detection
    )


def test_early_exits_share_the_output_projection() -> None:
    """Its gradient is the sum over the exits."""
    graph, module = objective("deep-supervision", model=single("gpt2-exits", layers=3))
    text = texts(4, 7)
    found = trained(graph, module, [{"text": text}])

    model = module.model
    x = model.position(model.embedding(begun(text)))
    losses = []
    for layer in model.decoder:
        x = layer(x=x)
        x = x[0] if isinstance(x, tuple) else x
        losses.append(mean_nll(model.head(model.norm(x)), text, smoothing=0.0))
    assert_same(found, module, 0.5 * losses[0] + 0.5 * losses[1] + losses[2])


def test_pairs_are_contrasted_by_one_encoder() -> None:
    """The right translation among all of the batch, in both directions."""
    model = single("sentence-encoder", vocab="=vocab")
    graph, module = objective("contrastive", model=model, temperature=0.1)
    source, target = texts(5, 6), texts(5, 7, seed=1)
    found = trained(graph, module, [{"source": source, "target": target}])

    one, other = (
        F.normalize(module.model(tokens=ids, mask=ids != PAD)["vector"], dim=-1)
        for ids in (source, target)
    )
    scores, right = one @ other.T / 0.1, torch.arange(5)
    wanted = 0.5 * (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right))
    assert_same(found, module, wanted)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("r-drop-translation", {"model": pair()}),
        ("distillation", {"model": pair(), "teacher": pair(layers=2)}),
        ("multi-task", {"model": pair()}),
        ("deep-supervision", {"model": single("gpt2-exits", layers=3)}),
    ],
)
def test_two_micro_batches_equal_one_batch(name: str, params: dict[str, Any]) -> None:
    """Each loss is divided by its items in the update, although the parts differ in size."""
    graph, module = objective(name, **params)
    columns = {"source": texts(6, 6), "target": texts(6, 7, seed=1), "text": texts(6, 8, seed=2)}
    whole = {column: columns[column] for column in graph.inputs}
    parts = [{n: ids[:2] for n, ids in whole.items()}, {n: ids[2:] for n, ids in whole.items()}]

    found, wanted = trained(graph, module, parts), trained(graph, module, [whole])

    assert found[0] == pytest.approx(wanted[0], rel=1e-5)
    for path, gradient in wanted[1].items():
        torch.testing.assert_close(found[1][path], gradient, rtol=1e-4, atol=1e-6, msg=path)


def test_lengths_of_mask_predict_are_those_of_the_targets() -> None:
    """The loss of lengths counts sentences, and that of words the masked tokens."""
    model = {**pair(), "spec": "mask-predict"}
    model["params"] = {**model["params"], "max_length": "=max_length"}
    graph, module = objective("mask-predict", model=model, max_length=5)
    source, target = texts(4, 6), texts(4, 7, seed=1)
    found = trained(graph, module, [{"source": source, "target": target}])

    torch.manual_seed(seed_of(*SEEDS, 0))
    mask = target != PAD
    masked, selected = module.masked(target)
    outputs = module.model(
        source=source, source_mask=source != PAD, target=masked, target_mask=mask
    )
    words = mean_nll(outputs["logits"], target.masked_fill(~selected, PAD))
    lengths = F.cross_entropy(outputs["lengths"], mask.sum(1).clamp(max=5) - 1)
    assert_same(found, module, words + 0.1 * lengths)
