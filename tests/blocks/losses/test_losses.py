"""Losses of pairs, elements, CTC and trees."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F
from weft.blocks.kernels.losses import divergence as kernel
from weft.blocks.kernels.losses.divergence import Direction
from weft.blocks.losses.ctc import CTC as CTC_BLOCK
from weft.blocks.losses.ctc import CTCParams
from weft.blocks.losses.ctc_module import CTC
from weft.blocks.losses.elementwise_module import BinaryCrossEntropy, MeanSquaredError
from weft.blocks.losses.pairs_module import Contrastive, KLDivergence
from weft.blocks.losses.tree_crf_module import ChartCrossEntropy
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

from ..binary_trees import trees

MASK = torch.tensor([[True, False, True, True], [False, True, True, False]])


@pytest.mark.parametrize("masked", [True, False])
def test_binary_cross_entropy_with_several_labels_is_that_of_torch(*, masked: bool) -> None:
    """The mean over the labels of an item; divided by the weight, torch's mean."""
    logits, labels = 3 * torch.randn(2, 4, 5), torch.rand(2, 4, 5)
    mask = MASK if masked else None
    kept = MASK if masked else torch.ones_like(MASK)
    loss = BinaryCrossEntropy()

    found = loss(logits, labels, mask) / loss.weight(labels=labels, mask=mask)

    wanted = F.binary_cross_entropy_with_logits(logits[kept], labels[kept])
    torch.testing.assert_close(found, wanted)
    assert loss.weight(labels=labels, mask=mask).item() == kept.sum().item()


def test_one_binary_label_worked_out_by_hand() -> None:
    """A score of log 3 is a probability of 3/4; a class of -1 does not count."""
    logits = torch.full((1, 3, 1), math.log(3.0))
    classes = torch.tensor([[1, 0, -1]])
    loss = BinaryCrossEntropy()

    found = loss(logits, classes=classes)

    assert found.item() == pytest.approx(-math.log(0.75) - math.log(0.25))
    assert loss.weight(classes=classes).item() == 2
    masked = loss(logits, truth=classes == 1, mask=classes >= 0)
    assert masked.item() == pytest.approx(found.item())
    assert loss.weight(truth=classes == 1).item() == 3
    assert loss.weight(truth=classes == 1, mask=classes >= 0).item() == 2


@pytest.mark.parametrize("masked", [True, False])
def test_mean_squared_error_is_that_of_torch(*, masked: bool) -> None:
    """Divided by the weight, the mean over features and items."""
    x, target = torch.randn(2, 4, 5, requires_grad=True), torch.randn(2, 4, 5)
    mask = MASK if masked else None
    kept = MASK if masked else torch.ones_like(MASK)
    loss = MeanSquaredError()

    found = loss(x, target, mask) / loss.weight(target, mask=mask)

    wanted = F.mse_loss(x[kept], target[kept])
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(wanted, x))


def test_a_mask_tells_the_number_of_items_without_the_target() -> None:
    """The target may come from a teacher, which has not run when the items are counted."""
    assert MeanSquaredError().weight(mask=MASK).item() == 5


def test_numbers_are_compared_with_vectors_of_one() -> None:
    """By hand: (3 - 1)^2 + (0 - 2)^2; a column of numbers has no axis of its own."""
    loss = MeanSquaredError()
    target = torch.tensor([1.0, 2.0])

    assert loss(torch.tensor([[3.0], [0.0]]), numbers=target).item() == 8.0
    assert loss.weight(numbers=target).item() == 2


PAIRS_MASK = torch.tensor([[True, False, True], [True, True, False]])


@pytest.mark.parametrize("direction", ["forward", "reverse", "symmetric"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_kl_divergence_is_that_of_torch(direction: Direction, temperature: float) -> None:
    """The sum over unmasked positions, times the squared temperature (Hinton et al., section 2)."""
    logits, target = 2 * torch.randn(2, 2, 3, 7, dtype=torch.float64)
    loss = KLDivergence(temperature, direction)

    found = loss(logits, target, PAIRS_MASK)

    student, teacher = (Categorical(logits=one / temperature) for one in (logits, target))
    forward, reverse = kl_divergence(teacher, student), kl_divergence(student, teacher)
    each = {"forward": forward, "reverse": reverse, "symmetric": (forward + reverse) / 2}
    wanted = temperature**2 * each[direction][PAIRS_MASK].sum()
    torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-5)
    assert loss.weight(mask=PAIRS_MASK).item() == 4


@pytest.mark.parametrize("direction", ["forward", "reverse", "symmetric"])
@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("selects", [True, False], ids=["CPU", "accelerator"])
def test_gradients_of_the_divergence_are_those_of_autograd(
    direction: Direction,
    needed: tuple[bool, bool],
    selects: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In several parts, for either logits or both; rows that do not count have none."""
    monkeypatch.setattr(kernel, "_selects_rows", lambda _: selects)
    monkeypatch.setattr(kernel, "CACHED", 3 * 7)
    monkeypatch.setattr(kernel, "CHUNK", 2 * 7)
    pair = [torch.randn(2, 3, 7).mul(3).requires_grad_(need) for need in needed]
    learning = [one for one in pair if one.requires_grad]

    found = 1.5 * KLDivergence(2.0, direction)(*pair, PAIRS_MASK)

    log_q, log_p = ((one / 2).log_softmax(-1) for one in pair)
    forward = F.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1)
    reverse = F.kl_div(log_p, log_q, log_target=True, reduction="none").sum(-1)
    each = {"forward": forward, "reverse": reverse, "symmetric": (forward + reverse) / 2}
    wanted = 1.5 * 4 * each[direction][PAIRS_MASK].sum()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    for gradient, expected in zip(
        torch.autograd.grad(found, learning, retain_graph=True),
        torch.autograd.grad(wanted, learning),
        strict=True,
    ):
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)
        assert not gradient[~PAIRS_MASK].any()
    again = torch.autograd.grad(found, learning)
    assert len(again) == len(learning)


def test_logits_of_other_shapes_are_refused() -> None:
    """Nothing is broadcast."""
    with pytest.raises(ValueError, match="do not fit"):
        KLDivergence()(torch.randn(2, 3, 7), torch.randn(2, 1, 7), PAIRS_MASK)


def test_classes_count_where_they_are_not_negative() -> None:
    """As a mask would."""
    logits, target = torch.randn(2, 2, 3, 7)
    classes = PAIRS_MASK.long() - 1
    loss = KLDivergence()

    assert torch.equal(loss(logits, target, classes), loss(logits, target, PAIRS_MASK))
    assert loss.weight(classes=classes).item() == 4


def test_a_class_that_both_exclude_does_not_matter() -> None:
    """0 log 0 is 0, in the loss and in its gradient."""
    logits = torch.tensor([[1.0, 0.5, -math.inf]], requires_grad=True)
    target = torch.tensor([[0.0, 2.0, -math.inf]])
    loss = KLDivergence()
    mask = torch.tensor([True])

    found = loss(logits, target, mask)

    torch.testing.assert_close(found, loss(logits[:, :2], target[:, :2], mask))
    assert torch.autograd.grad(found, logits)[0].isfinite().all()


def test_equal_logits_do_not_diverge() -> None:
    """The divergence of a distribution from itself is 0."""
    logits = torch.randn(2, 3, 7)

    assert KLDivergence(3.0, "symmetric")(logits, logits + 1.0, PAIRS_MASK).item() == pytest.approx(
        0
    )


@pytest.mark.parametrize("directions", ["both", "forward"])
def test_contrast_is_the_cross_entropy_of_similarities(directions: str) -> None:
    """Each row is a class, as in figure 3 of Radford et al. 2021."""
    x, z = torch.randn(2, 5, 8)
    ids = torch.zeros(5, 3, dtype=torch.int64)
    loss = Contrastive(0.2, directions)

    found = loss(x, z, ids=ids)

    score = F.cosine_similarity(x[:, None], z[None], dim=-1) / 0.2
    wanted = F.cross_entropy(score, torch.arange(5), reduction="sum")
    if directions == "both":
        wanted = (wanted + F.cross_entropy(score.T, torch.arange(5), reduction="sum")) / 2
    torch.testing.assert_close(found, wanted)
    for name in ("ids", "mask", "images"):
        assert loss.weight(**{name: ids}).item() == 5


def test_a_single_pair_has_nothing_to_choose_from() -> None:
    """The softmax of one similarity is 1, so its loss is 0."""
    x, z = torch.randn(2, 1, 8)

    assert Contrastive()(x, z, ids=x).item() == 0.0


def by_alignment(p: Tensor, labels: list[int], blank: int) -> float:
    """Return -log of the summed probability of all paths that collapse to the labels."""
    total = 0.0
    for path in itertools.product(range(p.size(1)), repeat=len(p)):
        collapsed = [one for one, _ in itertools.groupby(path) if one != blank]
        if collapsed == labels:
            total += math.prod(p[t, one].item() for t, one in enumerate(path))
    return -math.log(total)


@pytest.mark.parametrize("blank", [0, 3])
def test_it_sums_over_all_alignments(blank: int) -> None:
    """Section 3 of the paper, path by path, with padding of frames and labels."""
    logits = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([[1, 1, 2], [2, -1, 1]])
    mask = torch.tensor([[True] * 5, [True] * 4 + [False]])
    labels_mask = torch.tensor([[True, True, True], [True, True, True]])
    loss = CTC(blank)

    found, nll = loss(logits, labels, mask, labels_mask)

    p = logits.softmax(-1)
    wanted = by_alignment(p[0], [1, 1, 2], blank) + by_alignment(p[1, :4], [2, 1], blank)
    assert found.item() == pytest.approx(wanted, rel=1e-5)
    assert nll.item() == found.item()
    assert loss.weight(labels, labels_mask).item() == 5
    assert CTC(blank, per="sentences").weight(labels).item() == 2


def test_the_mask_excludes_labels_in_any_position() -> None:
    """Such as an end token or padding; the others keep their order."""
    logits = torch.randn(1, 6, 5)
    masked = torch.tensor([[4, 2, 1, 3]]), torch.tensor([[False, True, False, True]])
    loss = CTC()

    found, _ = loss(logits, masked[0], labels_mask=masked[1])

    torch.testing.assert_close(found, loss(logits, torch.tensor([[2, 3]]))[0])
    assert loss.weight(*masked).item() == 2


def test_too_few_frames_count_as_zero_if_wanted() -> None:
    """Two equal labels need three frames, with a blank between them."""
    logits = torch.randn(1, 2, 4, requires_grad=True)
    labels = torch.tensor([[1, 1]])

    found, _ = CTC()(logits, labels)

    assert found.item() == 0.0
    assert torch.autograd.grad(found, logits)[0].abs().sum() == 0.0
    assert CTC(zero_infinity=False)(logits, labels)[0].item() == math.inf


def test_a_blank_outside_the_classes_is_refused() -> None:
    """With the number of classes."""
    with pytest.raises(ValueError, match="blank is 11, but there are only 11 classes"):
        CTC_BLOCK.arguments(CTCParams(blank=11), {"v": 11})


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
