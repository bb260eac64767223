"""Late dropout reaches everything that drops values at random."""

from __future__ import annotations

import torch
import weft
from torch import Tensor, nn
from weft.runtime.train.transforms.dropout import Dropouts


class Plugin(nn.Module):
    """A block of a plug-in: a layer of PyTorch, and a probability under a name of its own."""

    def __init__(self) -> None:
        """Drop half of the values, twice."""
        super().__init__()
        self.layer, self.drop_rate = nn.Dropout(0.5), 0.5

    def forward(self, x: Tensor) -> Tensor:
        """Drop values."""
        return nn.functional.dropout(self.layer(x), self.drop_rate, self.training)


def test_a_block_of_a_plug_in_is_switched_off_and_on() -> None:
    """Both probabilities are restored to their values."""
    block = Plugin().train()
    dropouts, ones = Dropouts(block), torch.ones(100)

    dropouts.set(active=False)
    assert block(ones).equal(ones)
    dropouts.set(active=True)

    assert (block.layer.p, block.drop_rate) == (0.5, 0.5)
    assert not block(ones).equal(ones)


def test_paths_are_no_longer_dropped_either() -> None:
    """A residual path that is dropped for every second row: off, all rows are equal."""
    spec = weft.load(
        "transformer-tiny", d_model=16, heads=2, d_ff=32, layers=1, vocab=50, dropout=0.5
    )
    model = weft.build(spec).train()
    for module in model.modules():
        if hasattr(module, "drop_path"):
            module.drop_path = 0.5
    inputs = weft.example_inputs(spec)

    dropped = [model(**inputs)["logits"] for _ in range(2)]
    Dropouts(model).set(active=False)
    kept = [model(**inputs)["logits"] for _ in range(2)]

    assert not dropped[0].equal(dropped[1])
    assert kept[0].equal(kept[1])
