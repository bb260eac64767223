"""CKY compared with an enumeration of all binary trees."""

from __future__ import annotations

import pytest
import torch
from weft.extensions.parsing.decode.cky import best_trees

from ....blocks.binary_trees import trees

LENGTHS = torch.tensor([6, 1, 4, 2, 5, 3])
"""Words of the sentences of one batch."""


@pytest.mark.parametrize("seed", range(3))
def test_the_best_tree_is_the_best_of_all(seed: int) -> None:
    """Its spans are returned from the outside in."""
    generator = torch.Generator().manual_seed(seed)
    weight_BNN = torch.randn(len(LENGTHS), 6, 6, generator=generator)

    found = best_trees(weight_BNN, LENGTHS)

    for row, length in enumerate(LENGTHS.tolist()):
        best = max(
            trees(0, length - 1),
            key=lambda tree: sum(weight_BNN[row][span].item() for span in tree),
        )
        assert frozenset(found[row]) == best
        assert found[row][0] == (0, length - 1)
        assert len(found[row]) == 2 * length - 1
