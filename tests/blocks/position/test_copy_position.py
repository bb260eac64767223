"""Counted positions: encodings of counts by hand."""

from __future__ import annotations

import pytest
import torch
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.position.copy_position import COUNTED_POSITION
from weft.blocks.position.copy_position_module import CountedPosition
from weft.blocks.position.position_module import sinusoids

COUNTS = [
    ([3, 5, 9, 6, 2], [-1, 0, 0, 1, 1]),
    ([4, 4, 4, 8, 0], [0, 1, 2, 2, 2]),
]
"""Ids, and how many ids up to each are from 4 to 7, minus one: by hand."""


@pytest.mark.parametrize(("ids", "counts"), COUNTS)
def test_the_encoding_is_that_of_the_count(ids: list[int], counts: list[int]) -> None:
    """The count of a position includes its own id."""
    x = torch.randn(1, len(ids), 8)

    found = CountedPosition(below=8, first=4, start=-1)(x, torch.tensor([ids]))

    torch.testing.assert_close(found[0] - x[0], sinusoids(torch.tensor(counts), 8))


@pytest.mark.parametrize("parts", [(1, 1, 1, 1, 1), (3, 2), (1, 4)])
def test_steps_continue_the_count_of_each_row(parts: tuple[int, ...]) -> None:
    """One at a time or several; each row has its own count."""
    module = CountedPosition(below=8, first=4, start=-1)
    ids = torch.tensor([row for row, _ in COUNTS])
    x = torch.zeros(2, 5, 8)
    capacity = Capacity(
        sentences=1, beams=2, length=5, dtype=torch.float32, device=torch.device("cpu")
    )
    state = module.begin(capacity)

    steps, start = [], 0
    for count in parts:
        here = slice(start, start + count)
        steps.append(module.step(x[:, here], ids[:, here], state=state, position=start))
        start += count

    counts = torch.tensor([row for _, row in COUNTS])
    expected = torch.stack([sinusoids(row, 8) for row in counts])
    torch.testing.assert_close(torch.cat(steps, 1), expected)
    assert state.carried["count"].tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("params", "width", "message"),
    [
        ({"below": 4}, 7, "width 7 is odd"),
        ({"first": 4, "below": 4}, 8, "'first' is 4, but it must be less than 'below', 4"),
    ],
)
def test_invalid_params_are_refused(params: dict[str, int], width: int, message: str) -> None:
    """An odd width, and an empty range of ids."""
    given = COUNTED_POSITION.params.model_validate(params)

    with pytest.raises(ValueError, match=message):
        COUNTED_POSITION.arguments(given, {"d_model": width})
