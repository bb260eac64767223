"""Layouts of fused tensors: what they select, and the shape of the tensor they come from."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.checkpoint.mapping.layout import Extent, TensorLayout, fit

HEADS, KV_HEADS, WIDTH, D = 4, 2, 3, 5


def test_heads_of_gpt_neox_are_split() -> None:
    """Row (h, j, k) of the fused matrix is row k of head h; j = 0, 1, 2 are query, key, value."""
    fused = torch.arange(HEADS * 3 * WIDTH * D).reshape(HEADS * 3 * WIDTH, D)

    for which in range(3):
        layout = TensorLayout(split=((HEADS, 3, WIDTH),), take=(None, which))
        found = layout.result(fused, (HEADS * WIDTH, D))
        for head in range(HEADS):
            first = (3 * head + which) * WIDTH
            assert torch.equal(found[WIDTH * head :][:WIDTH], fused[first : first + WIDTH])
        bias = layout.result(fused[:, 0], (HEADS * WIDTH,))
        assert torch.equal(bias, found[:, 0])


def test_groups_of_falcon_are_split() -> None:
    """Each group has its queries, then one key and one value."""
    per_group = HEADS // KV_HEADS
    rows = [f"q{g}{q}" for g in range(KV_HEADS) for q in range(per_group)]
    fused = [
        name
        for g in range(KV_HEADS)
        for name in (*(f"q{g}{q}" for q in range(per_group)), f"k{g}", f"v{g}")
    ]
    ids = torch.arange(len(fused)).repeat_interleave(WIDTH)
    split = ((KV_HEADS, per_group + 2, WIDTH),)

    def named(layout: TensorLayout, heads: int) -> list[str]:
        return [fused[i] for i in layout.result(ids, (heads * WIDTH,))[::WIDTH].tolist()]

    assert named(TensorLayout(split, (None, (0, -2))), HEADS) == rows
    assert named(TensorLayout(split, (None, -2)), KV_HEADS) == ["k0", "k1"]
    assert named(TensorLayout(split, (None, -1)), KV_HEADS) == ["v0", "v1"]


@pytest.mark.parametrize(
    ("layout", "target", "wanted"),
    [
        (TensorLayout(), (4, 5), [(4, True), (5, True)]),
        (TensorLayout(permute=(1, 0)), (4, 5), [(5, True), (4, True)]),
        (TensorLayout(take=(0,)), (4, 5), [(1, False), (4, True), (5, True)]),
        (TensorLayout(take=((2, None),)), (4, 5), [(6, True), (5, True)]),
        (TensorLayout(take=((2, 6),)), (4, 5), [(6, False), (5, True)]),
        (TensorLayout(((4, 3, -1),), (None, 0)), (12, 5), [(36, True), (5, True)]),
        (TensorLayout(((4, 3, -1),), (None, 0)), (12,), [(36, True)]),
        (TensorLayout((None, (3, 6)), (None, 1), (1, 0)), (6, 5), [(5, True), (18, True)]),
        (TensorLayout(((4, -1),)), (4, 3, 5), [(12, True), (5, True)]),
    ],
)
def test_the_shape_of_the_source_follows_from_the_target(
    layout: TensorLayout, target: tuple[int, ...], wanted: list[tuple[int, bool]]
) -> None:
    """Worked out by hand; an index alone says only how long an axis is at least."""
    assert layout.extents(target) == [Extent(size, exact) for size, exact in wanted]


def test_a_shape_that_a_layout_cannot_give_is_refused() -> None:
    """Such as 10 rows of 4 heads."""
    with pytest.raises(ValueError, match="does not determine"):
        TensorLayout(((4, 3, -1),), (None, 0)).extents((10,))


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.integers(0, 3),
    st.booleans(),
    st.data(),
)
def test_writing_is_the_inverse_of_reading(
    sizes: list[int], chosen: int, transposed: bool, data: st.DataObject
) -> None:
    """A tensor assembled from all the parts that layouts read equals the original."""
    axis = chosen % len(sizes)
    columns = data.draw(st.integers(1, 3))
    source = torch.arange(float(torch.Size([*sizes, columns]).numel())).reshape(-1, columns)
    made = torch.full_like(source, -1)

    for index in range(sizes[axis]):
        take = (*[None] * axis, index)
        layout = TensorLayout(
            (tuple(sizes),), take, (1, 0) if transposed and len(sizes) > 2 else ()
        )
        part = layout.view(source)
        layout.view(made).copy_(part.clone())

    assert torch.equal(made, source)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_joining_finds_the_sizes_it_came_from(sizes: list[int], data: st.DataObject) -> None:
    """One unknown size of axes that are joined to one is found."""
    unknown = data.draw(st.integers(0, len(sizes) - 1))
    written = [None if at == unknown else size for at, size in enumerate(sizes)]
    whole = torch.Size(sizes).numel()

    assert fit(written, [whole]) == tuple(sizes)
