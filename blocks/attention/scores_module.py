"""Parts for scores, attention weights and outputs of heads.

Axes: B sequences, H heads, T query positions, S key positions, D any width.  A module is
`elementwise` if attention may call it with single scores, as FlexAttention does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class HeadGates(nn.Module):
    """Multiply each head by a learned scalar.

    Source: Michel et al. 2019, section 2.3; scores: Henry et al. 2020, section 2.2.
    """

    def __init__(self, heads: int, start: float = 1.0) -> None:
        """Create one scalar for each head."""
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.full((heads,), start))

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Set the scalars to their initial value."""
        nn.init.constant_(self.weight, self.start)

    def forward(self, x: Tensor) -> Tensor:
        """Return x [B, H, T, D] with each head multiplied by its scalar."""
        return x * self.weight[:, None, None].to(x.dtype)


class TalkingHeads(nn.Module):
    """Linear map over the heads.

    Source: Shazeer et al. 2020, section 2.
    """

    def __init__(self, heads: int) -> None:
        """Create the map [H, H]."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, heads))

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start with the identity, which is attention without the map."""
        nn.init.eye_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the combinations of x [B, H, T, S], in the same shape."""
        product_BHTS: Tensor = (self.weight.to(x.dtype) @ x.flatten(2)).view_as(x)
        return product_BHTS
