"""Products over named axes, against loops over indices."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from weft.graphs.cost.flops import flops
from weft.graphs.passes.unpad import plan_unpad
from weft.runtime.codegen.build import build

from ..single_node import computed, findings_of, graph_of, part_of, spec_of, type_of

SIZES = {"b": 2, "t": 3, "s": 5, "h": 2, "k": 4, "head": 2, "width": 3, "i": 2, "j": 3, "n": 4}
TYPES = {"b": "B", "t": "T", "s": "S"}
PATTERNS = [
    "b t k, b s k -> b t s",
    "b h t k, b h s k -> b h t s",
    "b t head k, head k width -> b t width",
    "b t k, k -> b t",
    "b t i, b t j -> b t i j",
    "b t k, b t k -> b t",
    "b t s, b s k -> b t k",
    "b t i, i j k, b t j -> b t k",
    "b t i, b t j, i n -> b t n j",
    "b i, b j, i k, k n -> b n j",
    "b t k -> b k t",
    "b h t k -> b t h k",
    "k, k ->",
]


def types_of(pattern: str) -> dict[str, str]:
    """Return the types of the values of a pattern."""
    values = pattern.partition("->")[0].split(",")
    texts = [" ".join(TYPES.get(n, str(SIZES[n])) for n in names.split()) for names in values]
    return {port: f"f[{text}]" for port, text in zip("xzwv", texts, strict=False)}


def drawn(pattern: str) -> dict[str, Tensor]:
    """Return random values for a pattern."""
    generator = torch.Generator().manual_seed(0)
    values = pattern.partition("->")[0].split(",")
    return {
        port: torch.randn(
            [SIZES[name] for name in names.split()], generator=generator, dtype=torch.float64
        )
        for port, names in zip("xzwv", values, strict=False)
    }


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_product_is_a_sum_over_all_indices(pattern: str) -> None:
    """The definition: for all indices, add the product of the elements to the result."""
    values = drawn(pattern)

    y = computed(spec_of("einsum@1", types_of(pattern), y=pattern), **values)

    before, _, after = pattern.partition("->")
    operands, result = [names.split() for names in before.split(",")], after.split()
    names = sorted({name for axes in operands for name in axes})
    expected = torch.zeros([SIZES[name] for name in result], dtype=torch.float64)
    for index in itertools.product(*(range(SIZES[name]) for name in names)):
        at = dict(zip(names, index, strict=True))
        elements = [
            float(value[tuple(at[name] for name in axes)])
            for value, axes in zip(values.values(), operands, strict=True)
        ]
        expected[tuple(at[name] for name in result)] += math.prod(elements)
    torch.testing.assert_close(y, expected)


def test_leading_axes_are_those_of_all_values() -> None:
    """`...` stands for any axes: here a product of vectors with a matrix, for each token."""
    x, z = torch.randn(2, 3, 4), torch.randn(4, 5)

    y = computed(
        spec_of("einsum@1", {"x": "f[B T 4]", "z": "f[4 5]"}, y="... k, k j -> ... j"), x=x, z=z
    )

    torch.testing.assert_close(y, torch.stack([row @ z for row in x]))


@pytest.mark.parametrize(
    ("pattern", "inputs", "result"),
    [
        ("b t k, b s k -> b t s", {"x": "f[B T 8]", "z": "f[B S 8]"}, "f[B T S]"),
        ("b t k, b s k -> b t s", {"x": "f[B T 8]", "z": "f[B T 8]"}, "f[B T T]"),
        ("... k, k j -> ... j", {"x": "f[B T+1 4]", "z": "f[4 5]"}, "f[B T+1 5]"),
        ("b t->t b", {"x": "ids:9[B T]"}, "ids:9[T B]"),
        ("b t s -> b s t", {"x": "mask[B T S]"}, "mask[B S T]"),
        ("d, d ->", {"x": "f[8]", "z": "f[8]"}, "f[]"),
        ("B T D, D E -> B T E", {"x": "f[B T 4]", "z": "f[4 5]"}, "f[B T 5]"),
    ],
)
def test_the_type_of_a_product_follows_from_the_pattern(
    pattern: str, inputs: dict[str, str], result: str
) -> None:
    """Written out by hand; the axes of one value may be permuted whatever it holds."""
    assert type_of(spec_of("einsum@1", inputs, y=pattern)) == result


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_cost_of_a_product_is_the_count_of_torch(pattern: str) -> None:
    """Products from left to right; those that sum over nothing are not matrix products."""
    graph = graph_of(spec_of("einsum@1", types_of(pattern), y=pattern))
    model = build(graph)

    with FlopCounterMode(display=False) as counter:
        model(**drawn(pattern))

    sizes = {"B": SIZES["b"], "T": SIZES["t"], "S": SIZES["s"]}
    assert flops(graph, sizes) == counter.get_total_flops()


def test_a_product_of_tokens_needs_no_padding() -> None:
    """With the batch and the positions in front, tokens are multiplied as they are."""
    inputs = {"x": "f[B T 2 4]", "z": "f[2 4 3]"}
    spec = spec_of("einsum@1", inputs, y="b t h k, h k d -> b t d")

    plan = plan_unpad(graph_of(spec))

    assert plan.axes == ("T",)
    assert plan.blocks == {}


def test_spaces_do_not_change_a_product() -> None:
    """A pattern is stored with single spaces."""
    inputs = {"x": "f[B T 8]", "z": "f[B S 8]"}
    texts = ("b t k,b s k->b t s", "b  t k , b s k  ->  b t s")

    patterns = {
        str(dict(part_of(graph_of(spec_of("einsum@1", inputs, y=text))).params)["y"])
        for text in texts
    }

    assert patterns == {"b t k, b s k -> b t s"}


@pytest.mark.parametrize(
    ("pattern", "inputs", "code", "text"),
    [
        ("b t k, b s k", {"x": "f[B T 8]", "z": "f[B S 8]"}, "P01", "has no '->'"),
        ("btk, bsk -> btk bsk", {"x": "f[B T 8]", "z": "f[B S 8]"}, "T04", "names 1 axes of 'x'"),
        ("b t 8, 8 k -> b t k", {"x": "f[B T 8]", "z": "f[8 4]"}, "P01", "'8' is not the name"),
        ("b t k, b s k -> b t r", {"x": "f[B T 8]", "z": "f[B S 8]"}, "P01", "no value has"),
        ("b t t -> b t", {"x": "f[B T T]"}, "P01", "names the axis 't' twice"),
        ("b t ..., b s -> b t s", {"x": "f[B T 8]", "z": "f[B S]"}, "P01", "only precede"),
        ("... k, k j -> j", {"x": "f[B T 8]", "z": "f[8 4]"}, "P01", "lacks the '...'"),
        ("b t d -> b d", {"x": "f[B T 8]"}, "P01", "sum over it with reduce@1"),
        ("b t k, b s -> b t", {"x": "f[B T 8]", "z": "f[B S]"}, "P01", "an axis of one value"),
        ("b t d -> b t d", {"x": "f[B T 8]"}, "P01", "changes nothing"),
        ("a, b, c, d, e -> a b c d e", {"x": "f[8]"}, "P01", "at most 4"),
        ("b t k, b s k -> b t s", {"x": "f[B T 8]", "z": "f[B S 9]"}, "T03", "8"),
        ("b t k, b s k -> b t s", {"x": "f[B T 8]", "z": "f[B 8]"}, "T04", "names 3 axes of 'z'"),
        ("b t k, b s k -> b t s", {"x": "f[B T 8]", "z": "ids:9[B S 8]"}, "T02", "kind"),
        ("b t k, b s k -> b t s", {"x": "f[B T 8]"}, "W01", "port 'z'"),
        ("b t -> t b", {"x": "f[B T]", "z": "f[B T]"}, "N03", "no port 'z'"),
        (
            f"{' '.join(f'a{n}' for n in range(15))}, {' '.join(f'b{n}' for n in range(15))} -> a1",
            {"x": "f[B T]"},
            "P01",
            "names 30 axes",
        ),
        (" ".join(f"a{n}" for n in range(99)) + " -> a1", {"x": "f[B T]"}, "P01", "at most 20"),
    ],
)
def test_a_wrong_product_is_found_at_its_node(
    pattern: str, inputs: dict[str, str], code: str, text: str
) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec_of("einsum@1", inputs, y=pattern))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert "/nodes/node" in finding.at


@pytest.mark.parametrize(
    ("pattern", "inputs", "problem"),
    [
        ("b t k, b t j -> b k j", {"x": "f[B T 8]", "z": "f[B T 4]"}, "reads later positions of T"),
        ("b t k, b s k -> b t s", {"x": "f[B T 8]", "z": "f[B T 8]"}, "pairs of positions of T"),
    ],
)
def test_a_product_over_the_positions_is_not_decoded(
    pattern: str, inputs: dict[str, Any], problem: str
) -> None:
    """A sum over all positions, or a score of a later one, is unknown at a step."""
    findings = findings_of(spec_of("einsum@1", inputs, step_axis="T", y=pattern))

    assert any(f.code == "D01" and problem in f.problem and f.help for f in findings)
