"""Reductions over named axes, against loops over elements."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from weft.graphs.passes.unpad import plan_unpad

from ..single_node import computed, findings_of, graph_of, spec_of, type_of

SIZES = {"b": 2, "t": 5, "s": 3, "h": 2, "d": 4}
TYPES = {"b": "B", "t": "T", "s": "S", "h": "2", "d": "4"}
REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "mean": lambda elements: statistics.fmean(elements) if elements else 0.0,
    "max": lambda elements: max(elements, default=0.0),
    "min": lambda elements: min(elements, default=0.0),
    "logsumexp": lambda elements: (
        math.log(math.fsum(map(math.exp, elements))) if elements else -math.inf
    ),
}


def axes_of(names: str) -> str:
    """Return the axes of a value whose axes have some names."""
    return " ".join(TYPES[name] for name in names.split())


def reduced(
    x: Tensor, names: list[str], result: list[str], by: str, mask: Tensor, of_mask: list[str]
) -> Tensor:
    """Return the reduction of the elements where the mask is true, by a loop over all indices."""
    elements: dict[tuple[int, ...], list[float]] = {}
    for index in itertools.product(*(range(size) for size in x.shape)):
        at = dict(zip(names, index, strict=True))
        group = elements.setdefault(tuple(at[name] for name in result), [])
        if mask[tuple(at[name] for name in of_mask)]:
            group.append(float(x[index]))
    values = [REDUCTIONS[by](group) for _, group in sorted(elements.items())]
    return torch.tensor(values, dtype=x.dtype).view([SIZES[name] for name in result])


@pytest.mark.parametrize("by", REDUCTIONS)
@pytest.mark.parametrize(
    ("pattern", "of_mask"),
    [
        ("b t d -> b d", ""),
        ("b t d -> b d", "b t"),
        ("b t d -> b", "b t"),
        ("b h t s -> b h t", "b s"),
        ("b h t s -> b t", "b h s"),
        ("b t d -> b t", "d"),
        ("b t d -> d", "t"),
        ("b t d ->", "b t d"),
        ("t d -> d", ""),
    ],
)
def test_a_reduction_reads_the_elements_that_the_mask_leaves(
    by: str, pattern: str, of_mask: str
) -> None:
    """The definition; a row without any element gives 0, and -inf as a log-sum."""
    generator = torch.Generator().manual_seed(0)
    names, result = (text.split() for text in pattern.split("->"))
    x = torch.randn([SIZES[n] for n in names], generator=generator, dtype=torch.float64)
    mask = torch.rand([SIZES[name] for name in of_mask.split()], generator=generator) > 0.4
    mask = mask if of_mask else torch.tensor(True)
    if mask.dim():
        mask[0] = False
    inputs = {"x": f"f[{axes_of(' '.join(names))}]"}
    inputs |= {"mask": f"mask[{axes_of(of_mask)}]"} if of_mask else {}

    y = computed(
        spec_of("reduce@1", inputs, y=pattern, by=by), x=x, **{"mask": mask} if of_mask else {}
    )

    torch.testing.assert_close(y, reduced(x, names, result, by, mask, of_mask.split()))


@pytest.mark.parametrize("by", REDUCTIONS)
def test_gradients_are_finite_where_the_mask_excludes_all(by: str) -> None:
    """A row of padding must not spoil the others."""
    x = torch.randn(2, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    inputs = {"x": "f[B T 4]", "mask": "mask[B T]"}

    y = computed(spec_of("reduce@1", inputs, y="b t d -> b d", by=by), x=x, mask=mask)
    y[0].sum().backward()

    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert torch.equal(x.grad[0, 2], torch.zeros(4))


@pytest.mark.parametrize(
    ("pattern", "inputs", "params", "result"),
    [
        ("b t d -> b d", {"x": "f[B T 8]", "mask": "mask[B T]"}, {}, "f[B 8]"),
        ("... d -> ...", {"x": "f[B T 8]"}, {}, "f[B T]"),
        ("... t -> ...", {"x": "f[B 8 T]", "mask": "mask[B T]"}, {}, "f[B 8]"),
        ("b t -> b", {"x": "score[B T]"}, {}, "score[B]"),
        ("b t -> b", {"x": "f[B T]"}, {"kind": "score"}, "score[B]"),
        ("b t ->", {"x": "f[B T]"}, {"kind": "loss"}, "loss[]"),
        ("b t s -> b t", {"x": "f[B T T]", "mask": "mask[B T]"}, {"mask": "b s"}, "f[B T]"),
    ],
)
def test_the_type_of_a_reduction_follows_from_the_pattern(
    pattern: str, inputs: dict[str, str], params: dict[str, str], result: str
) -> None:
    """Written out by hand."""
    assert type_of(spec_of("reduce@1", inputs, y=pattern, by="sum", **params)) == result


def test_a_reduction_of_features_needs_no_padding() -> None:
    """With the batch and the positions in front, tokens are reduced as they are."""
    plan = plan_unpad(
        graph_of(spec_of("reduce@1", {"x": "f[B T 2 4]"}, y="b t h d -> b t d", by="max"))
    )

    assert plan.axes == ("T",)
    assert plan.blocks == {}


X, MASKED = {"x": "f[B T 8]"}, {"x": "f[B T 8]", "mask": "mask[B T]"}


@pytest.mark.parametrize(
    ("pattern", "inputs", "params", "code", "text"),
    [
        ("b t d", X, {}, "P01", "has no '->'"),
        ("b t d -> b t d", X, {}, "P01", "reduces no axis"),
        ("b t d -> d b", X, {}, "P01", "do that with einsum@1"),
        ("b t d, b t -> b d", X, {}, "P01", "multiply them with einsum@1"),
        ("b t d -> b e", X, {}, "P01", "no value has"),
        ("b t d -> b d", X, {"by": "median"}, "P01", "median"),
        ("b t d -> b d", X, {"kind": "loss"}, "P01", "a loss is a single number"),
        ("b t d -> b d", MASKED, {"mask": "b s"}, "P01", "'x' does not have"),
        ("b t -> b", X, {}, "T04", "names 2 axes of 'x', which has 3"),
        ("b t d -> b d", {"x": "ids:9[B T 8]"}, {}, "T02", "needs numbers"),
        ("b t d -> b d", {"x": "f[B T 8]", "mask": "f[B T]"}, {}, "T02", "kind"),
        ("b t d -> b t", MASKED, {}, "T04", "none of the axes that are reduced"),
        ("b t d -> b d", {"x": "f[B T 8]", "mask": "mask[B S]"}, {}, "T03", "lacks the axis S"),
        ("b t s -> b t", {"x": "f[B T T]", "mask": "mask[B T]"}, {}, "T03", "2 times"),
        ("b t d -> b d", MASKED, {"mask": "t"}, "T04", "names 1 axes of 'mask'"),
        ("b t d -> b d", {"x": "f[B T 8]", "mask": "mask[T B]"}, {}, "T03", "another order"),
        ("b t d -> b d", {"mask": "mask[B T]"}, {}, "W01", "port 'x'"),
        ("b t d -> b d", X, {"mask": "b t"}, "P08", "no mask is wired"),
    ],
)
def test_a_wrong_reduction_is_found_at_its_node(
    pattern: str, inputs: dict[str, str], params: dict[str, str], code: str, text: str
) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec_of("reduce@1", inputs, y=pattern, **{"by": "sum", **params}))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert "/nodes/node" in finding.at


def test_a_reduction_over_the_positions_is_not_decoded() -> None:
    """The mean of all positions is unknown at the first."""
    findings = findings_of(spec_of("reduce@1", X, step_axis="T", y="b t d -> b d", by="mean"))

    assert any(f.code == "D01" and "reads later positions of T" in f.problem for f in findings)
