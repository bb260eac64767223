"""Elements at ids and ids of largest elements, against loops over indices."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from weft.graphs.passes.unpad import plan_unpad

from ..single_node import computed, findings_of, graph_of, spec_of, type_of

pytestmark = pytest.mark.exact

SIZES = {"b": 2, "t": 3, "s": 5, "v": 7, "d": 4, "e": 3, "n": 2}
TYPES = {"b": "B", "t": "T", "s": "S", "v": "7", "d": "4", "e": "3", "n": "2"}


def axes_of(names: list[str]) -> str:
    """Return the axes of a value whose axes have some names."""
    return " ".join(TYPES[name] for name in names)


@pytest.mark.parametrize(
    "pattern",
    [
        "b t v, b t -> b t",
        "b t v d, b t -> b t d",
        "b t v, b t n -> b t n",
        "b s d, b t -> b t d",
        "b s d, b -> b d",
        "b s d e, b t n -> b t n d e",
        "b s d e, b -> b d e",
        "v d, b t -> b t d",
        "v, b t -> b t",
        "v d e, b -> b d e",
        "b s, b t n -> b t n",
    ],
)
def test_each_id_selects_an_element(pattern: str) -> None:
    """The definition: look up the element of every index of the result."""
    before, result = pattern.split("->")
    x_names, ids_names = (text.split() for text in before.split(","))
    (indexed,) = (name for name in x_names if name not in result.split())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn([SIZES[name] for name in x_names], generator=generator)
    ids = torch.randint(SIZES[indexed], [SIZES[name] for name in ids_names], generator=generator)
    kind = "pos" if indexed == "s" else "ids:7"
    inputs = {"x": f"f[{axes_of(x_names)}]", "ids": f"{kind}[{axes_of(ids_names)}]"}

    y = computed(spec_of("gather@1", inputs, y=pattern), x=x, ids=ids)

    names = result.split()
    assert list(y.shape) == [SIZES[name] for name in names]
    for index in itertools.product(*(range(SIZES[name]) for name in names)):
        at = dict(zip(names, index, strict=True))
        at[indexed] = int(ids[tuple(at[name] for name in ids_names)])
        assert y[index] == x[tuple(at[name] for name in x_names)]


def test_padding_of_labels_selects_the_first_element() -> None:
    """-1 marks padding, whose elements do not count."""
    x, ids = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[1, -1]])
    inputs = {"x": "f[B T 2]", "ids": "label:2[B T]"}

    y = computed(spec_of("gather@1", inputs, y="b t v, b t -> b t"), x=x, ids=ids)

    assert y.tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("pattern", "inputs", "result"),
    [
        ("b t v, b t -> b t", {"x": "f[B T 7]", "ids": "ids:7[B T]"}, "f[B T]"),
        ("... v, ... -> ...", {"x": "f[B T 7]", "ids": "ids:5[B T]"}, "f[B T]"),
        ("v d, ... -> ... d", {"x": "f[7 4]", "ids": "ids:7[B T]"}, "f[B T 4]"),
        ("b s, b t -> b t", {"x": "ids:9[B S]", "ids": "pos[B T]"}, "ids:9[B T]"),
        ("b s, b t -> b t", {"x": "mask[B S]", "ids": "pos[B T]"}, "mask[B T]"),
    ],
)
def test_elements_keep_their_kind(pattern: str, inputs: dict[str, str], result: str) -> None:
    """Written out by hand."""
    assert type_of(spec_of("gather@1", inputs, y=pattern)) == result


def test_elements_of_tokens_need_no_padding() -> None:
    """With the batch and the positions in front, tokens are read as they are."""
    inputs = {"x": "f[B T 7]", "ids": "ids:7[B T]"}

    plan = plan_unpad(graph_of(spec_of("gather@1", inputs, y="b t v, b t -> b t")))

    assert plan.axes == ("T",)
    assert plan.blocks == {}


LOGITS = {"x": "f[B T 7]", "ids": "ids:7[B T]"}


@pytest.mark.parametrize(
    ("pattern", "inputs", "code", "text"),
    [
        ("b t v -> b t", LOGITS, "P01", "has 1 values"),
        ("b t v, b t -> b t v", LOGITS, "P01", "must lack one axis of 'x'"),
        ("b t v, b t -> b", LOGITS, "P01", "must lack one axis of 'x'"),
        ("b t v, t b -> t b", LOGITS, "P01", "permute values with einsum@1"),
        ("b t v, b t n -> b n t", LOGITS, "P01", "permute values with einsum@1"),
        ("b t v, b t -> b t", {**LOGITS, "ids": "ids:8[B T]"}, "T03", "has 7 elements"),
        ("b t v, b t -> b t", {**LOGITS, "ids": "pos[B T]"}, "T02", "has 7 elements"),
        ("b t v, b t -> b t", {**LOGITS, "ids": "f[B T]"}, "T02", "'ids' is f[B T]"),
        ("b s, b t -> b t", {"x": "f[B S]", "ids": "ids:7[B T]"}, "T02", '"kind": "pos"'),
        ("b t v, b t -> b t", {**LOGITS, "ids": "ids:7[B S]"}, "T03", "S"),
        ("b t v, b t -> b t", {**LOGITS, "x": "f[B 7]"}, "T04", "names 3 axes of 'x'"),
        ("b t v, b t -> b t", {"x": "f[B T 7]"}, "W01", "port 'ids'"),
    ],
)
def test_a_wrong_selection_is_found_at_its_node(
    pattern: str, inputs: dict[str, str], code: str, text: str
) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec_of("gather@1", inputs, y=pattern))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert "/nodes/node" in finding.at


def test_elements_of_all_positions_are_not_decoded() -> None:
    """An index may be that of a later position."""
    inputs = {"x": "f[B T]", "ids": "pos[B T]"}

    findings = findings_of(spec_of("gather@1", inputs, step_axis="T", y="b s, b t -> b t"))

    assert any(f.code == "D01" and "reads later positions of T" in f.problem for f in findings)


def largest(x: Tensor, mask: Tensor) -> list[list[int]]:
    """Return the first index of the largest element of each row that the mask leaves, or 0."""
    rows = []
    for values, allowed in zip(x.tolist(), mask.tolist(), strict=True):
        pairs = [(value, -i) for i, (value, a) in enumerate(zip(values, allowed, strict=True)) if a]
        rows.append([-max(pairs, default=(0, 0))[1]])
    return rows


@pytest.mark.parametrize("masked", [False, True])
def test_the_largest_element_is_found(*, masked: bool) -> None:
    """Of the elements that the mask leaves; 0 if there are none."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 6, generator=generator)
    mask = torch.rand(4, 6, generator=generator) > 0.6 if masked else torch.ones(4, 6).bool()
    mask[0] = not masked
    inputs = {"x": "f[B T]"} | ({"mask": "mask[B T]"} if masked else {})
    values = {"x": x} | ({"mask": mask} if masked else {})

    y = computed(spec_of("argmax@1", inputs, y="b t -> b"), **values)

    assert y.tolist() == [row[0] for row in largest(x, mask)]


@pytest.mark.parametrize(
    ("pattern", "inputs", "params", "result"),
    [
        ("b t v -> b t", {"x": "f[B T 7]"}, {}, "ids:7[B T]"),
        ("b t v -> b t", {"x": "f[B T 7]"}, {"kind": "label"}, "label:7[B T]"),
        ("... v -> ...", {"x": "f[B T 7]"}, {}, "ids:7[B T]"),
        ("b t s -> b t", {"x": "f[B T S]", "mask": "mask[B S]"}, {}, "pos[B T]"),
    ],
)
def test_an_index_is_below_the_size_of_its_axis(
    pattern: str, inputs: dict[str, str], params: dict[str, str], result: str
) -> None:
    """Ids of a number of elements, and positions of others."""
    assert type_of(spec_of("argmax@1", inputs, y=pattern, **params)) == result


@pytest.mark.parametrize(
    ("pattern", "inputs", "params", "code", "text"),
    [
        ("b t v -> b t v", {"x": "f[B T 7]"}, {}, "P01", "must lack one axis"),
        ("b t v -> b", {"x": "f[B T 7]"}, {}, "P01", "must lack one axis"),
        ("b t v -> t b", {"x": "f[B T 7]"}, {}, "P01", "do that with einsum@1"),
        ("b t v -> b t", {"x": "f[B T 7]"}, {"kind": "f"}, "P01", "kind"),
        ("b t v -> b t", {"x": "f[B T 7]"}, {"mask": "q"}, "P01", "does not have"),
        ("b t v -> b t", {"x": "f[B T 7]"}, {"mask": "b v"}, "P08", "no mask is wired"),
        ("b t -> b", {"x": "f[B T]"}, {"kind": "label"}, "P08", "no effect"),
        ("b t v -> b t", {"x": "ids:9[B T 7]"}, {}, "T02", "needs numbers"),
        ("b t v -> b t", {"x": "f[B T 7]", "mask": "mask[B T]"}, {}, "T04", "none of the axes"),
    ],
)
def test_a_wrong_argmax_is_found_at_its_node(
    pattern: str, inputs: dict[str, str], params: dict[str, str], code: str, text: str
) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec_of("argmax@1", inputs, y=pattern, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert "/nodes/node" in finding.at
