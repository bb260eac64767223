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


GROUPED: dict[str, tuple[str, str, dict[str, int], str]] = {
    "split into heads": ("f[B T 8]", "b t (h k) -> b h t k", {"h": 2}, "f[B 2 T 4]"),
    "the last of a group": ("f[B T 8]", "b t (h k) -> b t h k", {"k": 2}, "f[B T 4 2]"),
    "heads merged": ("f[B 2 T 4]", "b h t k -> b t (h k)", {}, "f[B T 8]"),
    "ids": ("ids:99[B T 2 4]", "b t a c -> b t (a c)", {}, "ids:99[B T 8]"),
    "groups on both sides": (
        "f[B T 8]",
        "b t (h k j) -> b t (j h) k",
        {"k": 2, "j": 2},
        "f[B T 4 2]",
    ),
    "any leading axes": ("f[B T 8]", "... (h k) -> ... k h", {"k": 2}, "f[B T 2 4]"),
}


@pytest.mark.parametrize(("x", "pattern", "sizes", "result"), GROUPED.values(), ids=GROUPED)
def test_axes_are_split_and_merged_element_by_element(
    x: str, pattern: str, sizes: dict[str, int], result: str
) -> None:
    """Each element of the value is where numpy's order of indices puts it; B is 2, and T is 3."""
    spec = spec_of("einsum@1", {"x": x}, y=pattern, sizes=sizes)
    lengths = {"B": 2, "T": 3} | {str(number): number for number in range(10)}
    axes = [lengths[axis] for axis in x.partition("[")[2][:-1].split()]
    value = torch.arange(math.prod(axes)).view(axes)
    before, after = (
        side.replace("...", "b t").replace("(", " ( ").replace(")", " ) ").split()
        for side in pattern.split("->")
    )
    flat = [name for name in before if name not in "()"]
    known = sizes | {"b": 2, "t": 3}
    if "(" in before:
        (unknown,) = (name for name in flat if name not in known)
        known[unknown] = 8 // math.prod(sizes.values())
    else:
        known = dict(zip(flat, axes, strict=True))
    names = [name for name in after if name not in "()"]

    y = computed(spec, x=value.float() if x[0] == "f" else value)

    assert type_of(spec) == result
    assert y.flatten().tolist() == [
        sum(
            dict(zip(names, index, strict=True))[name]
            * math.prod(known[n] for n in flat[flat.index(name) + 1 :])
            for name in flat
        )
        for index in itertools.product(*(range(known[name]) for name in names))
    ]


@pytest.mark.parametrize(
    ("x", "pattern", "sizes", "code", "text"),
    [
        ("f[B T 8]", "b t (h k) -> b h t k", {"h": 3}, "T03", "not divided by h = 3"),
        ("f[B T 8]", "b t (h k) -> b h t k", {"h": 2, "k": 3}, "T03", "h = 2 * k = 3"),
        ("f[B T 8]", "b t (h k) -> b h t k", {}, "P01", "all but one of h, k"),
        ("f[B T 8]", "b t (h k) -> b h t", {"h": 2}, "P01", "loses an axis"),
        ("f[B T]", "b (t k) -> b t k", {"k": 2}, "T03", "not a number of elements"),
        ("f[B T 8]", "b t k -> b (t k)", {}, "T03", "merges 't'"),
        ("f[B T 8]", "b t (h k -> b t h k", {"h": 2}, "P01", "not a group"),
        ("f[B T 8]", "b t (h k) -> b t (h k)", {"h": 2}, "P01", "changes nothing"),
        ("f[B T 8]", "b t (h k) -> b h t k", {"heads": 2}, "P01", "no group"),
        ("f[B T 8]", "b t k -> b k t", {"k": 2}, "P01", "no group"),
        ("f[B T 8]", "b (h k) -> b h k", {"h": 2}, "T04", "axes of 'x'"),
    ],
)
def test_a_wrong_group_is_found(
    x: str, pattern: str, sizes: dict[str, int], code: str, text: str
) -> None:
    """With its place, and what is known of the sizes."""
    findings = findings_of(spec_of("einsum@1", {"x": x}, y=pattern, sizes=sizes))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, finding.help])
    assert "/nodes/node" in finding.at


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
