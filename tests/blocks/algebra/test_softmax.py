"""Weights over a named axis, against their definitions for lists of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.graphs.passes.unpad import plan_unpad

from ..single_node import computed, findings_of, graph_of, spec_of, type_of


def softmax(scores: Sequence[float]) -> list[float]:
    """Bridle 1990: exponentials that add up to 1."""
    total = math.fsum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def sparsemax(scores: Sequence[float]) -> list[float]:
    """Martins and Astudillo 2016, equation 1: max(0, x - tau) that adds up to 1, by bisection."""
    low, high = min(scores, default=0.0) - 1, max(scores, default=0.0)
    for _ in range(200):
        tau = (low + high) / 2
        if math.fsum(max(0.0, score - tau) for score in scores) > 1:
            low = tau
        else:
            high = tau
    return [max(0.0, score - tau) for score in scores]


KINDS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "softmax": softmax,
    "log_softmax": lambda scores: [math.log(weight) for weight in softmax(scores)],
    "softmax1": lambda scores: [
        math.exp(x) / (1 + math.fsum(math.exp(z) for z in scores)) for x in scores
    ],
    "squared_relu": lambda scores: [max(0.0, score) ** 2 for score in scores],
    "sparsemax": sparsemax,
    "sigmoid": lambda scores: [1 / (1 + math.exp(-score)) for score in scores],
}


def weights(x: Tensor, kind: str, dim: int, allowed: Callable[[tuple[int, ...]], bool]) -> Tensor:
    """Return the weights along an axis, row by row, of the elements that are allowed."""
    y = torch.full_like(x, -math.inf if kind == "log_softmax" else 0.0)
    others = [range(size) for axis, size in enumerate(x.shape) if axis != dim]
    for rest in itertools.product(*others):
        row = [(*rest[:dim], s, *rest[dim:]) for s in range(x.shape[dim])]
        row = [index for index in row if allowed(index)]
        for index, weight in zip(row, KINDS[kind]([float(x[i]) for i in row]), strict=True):
            y[index] = weight
    return y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "params", "dim"),
    [
        ([2, 3, 5], {}, 2),
        ([2, 3, 5], {"y": "b t s"}, 2),
        ([2, 3, 5], {"y": "b t s", "over": "t"}, 1),
        ([2, 3, 5], {"y": "b t s", "over": "b"}, 0),
    ],
    ids=str,
)
def test_weights_follow_their_definition(
    kind: str, shape: list[int], params: dict[str, str], dim: int
) -> None:
    """Each row along the axis is that of a list of numbers."""
    x = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    y = computed(spec_of("softmax@1", {"x": "f[B T S]"}, kind=kind, **params), x=x)

    torch.testing.assert_close(y, weights(x, kind, dim, lambda _: True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("pattern", "over", "mask_type", "allowed"),
    [
        ("b t s", "s", "mask[B S]", lambda mask, i: mask[i[0], i[2]]),
        ("b t s", "t", "mask[B T S]", lambda mask, i: mask[i]),
        ("b t s", "t", "mask[T]", lambda mask, i: mask[i[1]]),
    ],
    ids=["keys", "all", "positions"],
)
def test_masked_elements_have_no_weight(
    kind: str, pattern: str, over: str, mask_type: str, allowed: Callable[..., Any]
) -> None:
    """The others have the weights that they have alone; a row without any has none."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"B": 2, "T": 3, "S": 5}
    x = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    axes = mask_type[5:-1].split()
    mask = torch.rand([sizes[axis] for axis in axes], generator=generator) > 0.3
    if len(axes) > 1:
        mask[0] = False
    spec = spec_of(
        "softmax@1", {"x": "f[B T S]", "mask": mask_type}, y=pattern, over=over, kind=kind
    )

    y = computed(spec, x=x, mask=mask)

    dim = pattern.split().index(over)
    torch.testing.assert_close(y, weights(x, kind, dim, lambda i: bool(allowed(mask, i))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", ["b h t s", "b h s t", "b t h s"])
def test_causal_weights_see_no_later_positions(kind: str, pattern: str) -> None:
    """Position t has weights for 0, ..., t alone, wherever the two axes are."""
    names = pattern.split()
    sizes, axes = {"b": 2, "h": 2, "t": 4, "s": 4}, {"b": "B", "h": "2", "t": "T", "s": "T"}
    x = torch.randn(
        [sizes[n] for n in names], generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    inputs = {"x": f"f[{' '.join(axes[name] for name in names)}]"}
    spec = spec_of("softmax@1", inputs, y=pattern, over="s", causal="t", kind=kind)

    y = computed(spec, x=x)

    t, s = names.index("t"), names.index("s")
    torch.testing.assert_close(y, weights(x, kind, s, lambda index: index[s] <= index[t]))


def test_a_causal_row_of_padding_has_no_weights() -> None:
    """The mask and the order exclude elements together."""
    x, mask = torch.zeros(1, 3, 3), torch.tensor([[False, True, True]])
    inputs = {"x": "f[B T T]", "mask": "mask[B T]"}

    y = computed(spec_of("softmax@1", inputs, y="b t s", causal="t", mask="b s"), x=x, mask=mask)

    assert y.tolist() == [[[0, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_finite_where_the_mask_excludes_all(kind: str) -> None:
    """A row of padding must not spoil the others."""
    x = torch.randn(2, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    spec = spec_of("softmax@1", {"x": "f[B T]", "mask": "mask[B T]"}, kind=kind)

    computed(spec, x=x, mask=mask)[0, :2].square().sum().backward()

    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_causal_gradients_are_finite_and_not_of_later_positions(kind: str) -> None:
    """Scores of later keys have no influence."""
    x = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    seen = torch.ones(4, 4, dtype=torch.bool).tril()

    y = computed(spec_of("softmax@1", {"x": "f[B T T]"}, y="b t s", causal="t", kind=kind), x=x)
    y.masked_select(seen).square().sum().backward()

    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert torch.equal(x.grad.masked_select(~seen), torch.zeros(12))
    assert x.grad.any()


@pytest.mark.parametrize(
    ("inputs", "params", "result"),
    [
        ({"x": "f[B T 8]"}, {}, "f[B T 8]"),
        ({"x": "bias[B T S]", "mask": "mask[B S]"}, {"y": "b t s"}, "f[B T S]"),
        ({"x": "f[B 2 T S]", "mask": "mask[B S]"}, {}, "f[B 2 T S]"),
    ],
)
def test_weights_have_the_axes_of_the_scores(
    inputs: dict[str, str], params: dict[str, str], result: str
) -> None:
    """And are of the kind f."""
    assert type_of(spec_of("softmax@1", inputs, **params)) == result


def test_weights_over_features_need_no_padding() -> None:
    """With the batch and the positions in front, tokens are computed as they are."""
    plan = plan_unpad(graph_of(spec_of("softmax@1", {"x": "f[B T 8]"})))

    assert plan.axes == ("T",)
    assert plan.blocks == {}


PAIRS = {"x": "f[B T S]"}


@pytest.mark.parametrize(
    ("inputs", "params", "code", "text"),
    [
        (PAIRS, {"y": "b t s", "over": "r"}, "P01", "which is no axis of 'b t s'"),
        (PAIRS, {"y": "b t s", "over": "..."}, "P01", "which is no axis of 'b t s'"),
        (PAIRS, {"y": "b t s", "causal": "r"}, "P01", "which is no axis of 'b t s'"),
        (PAIRS, {"y": "b t s", "causal": "s"}, "P01", "the axis of the queries"),
        (PAIRS, {"y": "..."}, "P01", "names no axis"),
        (PAIRS, {"y": "b t ..."}, "P01", "only precede"),
        (PAIRS, {"y": "b t t"}, "P01", "names the axis 't' twice"),
        (PAIRS, {"kind": "entmax"}, "P01", "entmax"),
        (PAIRS, {"y": "b t s", "causal": "t"}, "T03", "'t' is T, but 's' is S"),
        (PAIRS, {"y": "b t h s"}, "T04", "names 4 axes of 'x', which has 3"),
        ({"x": "ids:9[B T S]"}, {}, "T02", "needs numbers"),
        (PAIRS | {"mask": "f[B S]"}, {"y": "b t s"}, "T02", "kind"),
        ({"x": "f[B T T]", "mask": "mask[B T]"}, {"y": "b t s"}, "T03", '"mask": "b s"'),
        (PAIRS | {"mask": "mask[B S]"}, {"y": "b t s", "mask": "b r"}, "P01", "does not have"),
        (PAIRS | {"mask": "mask[B S]"}, {"y": "b t s", "mask": "b t"}, "T03", "t"),
        ({"mask": "mask[B S]"}, {"y": "b t s"}, "W01", "port 'x'"),
        (PAIRS, {"y": "b t s", "mask": "b s"}, "P08", "no mask is wired"),
    ],
)
def test_wrong_weights_are_found_at_their_node(
    inputs: dict[str, str], params: dict[str, str], code: str, text: str
) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec_of("softmax@1", inputs, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert "/nodes/node" in finding.at


def test_weights_over_all_positions_are_not_decoded() -> None:
    """Later positions are unknown at a step."""
    findings = findings_of(spec_of("softmax@1", {"x": "f[B 8 T]"}, step_axis="T"))

    assert any(f.code == "D01" and "reads later positions of T" in f.problem for f in findings)
