"""The chart loss compared with an enumeration of every labeling of every binary tree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from weft.blocks.losses.tree_crf_module import ChartCrossEntropy
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

from ..binary_trees import trees

LABELS = 2
Spans = Mapping[tuple[int, int], int]
"""Label of each labeled span."""


def outcomes(words: int) -> list[dict[tuple[int, int], int]]:
    """Return every choice of a label, or none, for the spans of every binary tree."""
    choices = [*range(LABELS), None]
    return [
        {span: label for span, label in zip(sorted(tree), labels, strict=True) if label is not None}
        for tree in trees(0, words - 1)
        for labels in itertools.product(choices, repeat=len(tree))
    ]


def log_p(wanted: Spans, score_SSL: Tensor, words: int) -> float:
    """Return the log probability of labeled spans, by enumeration."""
    every = [
        (spans, math.exp(sum(score_SSL[i, j, label].item() for (i, j), label in spans.items())))
        for spans in outcomes(words)
    ]
    return math.log(sum(w for spans, w in every if spans == wanted) / sum(w for _, w in every))


def inputs(rows: list[tuple[int, Spans]], seed: int = 1) -> dict[str, Tensor]:
    """Return the inputs of the loss for sentences: their number of words, and labeled spans."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(words for words, _ in rows)
    widest = max(len(spans) for _, spans in rows) + 1
    values = {name: torch.full((len(rows), widest), -1) for name in ("first", "last", "label")}
    for row, (_, spans) in enumerate(rows):
        for place, ((i, j), label) in enumerate(spans.items()):
            for name, value in (("first", i), ("last", j), ("label", label)):
                values[name][row, place] = value
    binary = [math.log(sum(spans == one for one in outcomes(words))) for words, spans in rows]
    score = torch.randn(len(rows), longest, longest, LABELS, generator=generator)
    return {
        "score": score.requires_grad_(),
        **values,
        "binary": torch.tensor(binary),
        "known": torch.ones(len(rows), dtype=torch.bool),
        "mask": torch.arange(longest) < torch.tensor([[words] for words, _ in rows]),
    }


ROWS: list[tuple[int, Spans]] = [
    (3, {(0, 2): 1, (2, 2): 0}),
    (1, {}),
    (4, {(0, 3): 0, (1, 2): 1, (0, 0): 0}),
    (2, {(0, 1): 1}),
]


def test_the_loss_is_how_improbable_the_trees_are() -> None:
    """Summed over sentences of several lengths; a flat tree has several binary forms."""
    given = inputs(ROWS)

    loss, nll = ChartCrossEntropy()(**given)

    wanted = [
        log_p(spans, given["score"][row].detach(), words) for row, (words, spans) in enumerate(ROWS)
    ]
    assert loss.item() == pytest.approx(-sum(wanted), abs=1e-4)
    assert nll == loss
    assert not nll.requires_grad


def test_without_a_mask_every_position_is_a_word() -> None:
    """A batch of sentences of one length needs none."""
    given = inputs([ROWS[0], ROWS[0]])
    masked = ChartCrossEntropy()(**given)

    plain = ChartCrossEntropy()(**{name: value for name, value in given.items() if name != "mask"})

    assert torch.equal(masked[0], plain[0])


def test_a_sentence_that_is_not_known_has_no_loss_and_no_gradient() -> None:
    """The other sentences do, and their loss is that of a batch without it."""
    given = inputs(ROWS)
    given["known"][2] = False
    for name in ("first", "last", "label"):
        given[name][2] = -1

    loss, _ = ChartCrossEntropy()(**given)
    loss.backward()

    wanted = [
        log_p(spans, given["score"][row].detach(), words)
        for row, (words, spans) in enumerate(ROWS)
        if row != 2
    ]
    assert loss.item() == pytest.approx(-sum(wanted), abs=1e-4)
    assert given["score"].grad is not None
    assert not given["score"].grad[2].any()
    assert given["score"].grad[0].any()


def test_a_row_without_words_is_harmless() -> None:
    """Such a row is not known; nothing becomes infinite or NaN."""
    given = inputs(ROWS)
    given["known"][1] = given["mask"][1] = False

    loss, _ = ChartCrossEntropy()(**given)
    loss.backward()

    assert loss.isfinite()
    assert given["score"].grad is not None
    assert given["score"].grad.isfinite().all()
    assert not given["score"].grad[1].any()


def test_the_gradient_is_the_expected_minus_the_right_labels() -> None:
    """Compare with finite differences."""
    given = inputs([ROWS[0]])
    loss, _ = ChartCrossEntropy()(**given)
    loss.backward()
    assert given["score"].grad is not None

    for place in ((0, 0, 2, 1), (0, 0, 1, 0), (0, 2, 2, 0)):
        ends = []
        for step in (0.05, -0.05):
            moved = given["score"].detach().clone()
            moved[place] += step
            ends.append(-log_p(ROWS[0][1], moved[0], 3))
        assert given["score"].grad[place].item() == pytest.approx(
            (ends[0] - ends[1]) / 0.1, abs=1e-3
        )


def test_the_weight_counts_symbols_if_given_and_known_sentences_otherwise() -> None:
    """A sentence with an unknown label has no loss, but its symbols count."""
    loss, known = ChartCrossEntropy(), torch.tensor([True, False, True])

    assert loss.weight(known) == 2
    assert loss.weight(known, symbols=torch.tensor([5, 7, 2])) == 14


def test_a_spec_may_compute_the_loss_of_its_span_scores() -> None:
    """The wires fit, and every weight of the scores gets a gradient."""
    ports = {
        "first": "pos[B N]",
        "last": "pos[B N]",
        "label": "label:labels[B N]",
        "binary": "score[B]",
        "known": "mask[B]",
        "mask": "mask[B S]",
    }
    spec = loaded(
        {
            "format": 1,
            "name": "chart",
            "params": {"labels": LABELS},
            "axes": {"B": "batch", "S": "time", "N": "time"},
            "inputs": {"x": "f[B S 8]", **ports},
            "outputs": {"loss": "loss.loss", "nll": "loss.nll"},
            "nodes": {
                "span": {
                    "use": "span_score@1",
                    "in": {"x": "x", "mask": "mask"},
                    "params": {"d_hidden": 6, "labels": "=labels"},
                },
                "loss": {
                    "use": "chart_cross_entropy@1",
                    "in": {"score": "span.score", **{name: name for name in ports}},
                },
            },
        }
    )
    model = build(check(spec.form, registry(), checked=True))
    given = inputs(ROWS)
    del given["score"]

    outputs = model(x=torch.randn(4, 4, 8, generator=torch.Generator().manual_seed(3)), **given)
    outputs["loss"].backward()

    assert outputs["nll"] == outputs["loss"]
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())
