"""Modules that put noise on ids: masked, dropped, replaced and sampled tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.noise import generator_for, masked_at_random, random_ids, uniform


class MaskTokens(nn.Module):
    """Select tokens to be predicted, and mask most of them.

    Source: Devlin et al. 2019, section 3.1; Ghazvininejad et al. 2019, section 2.2.
    """

    def __init__(
        self,
        v: int,
        rate: float | str = 0.15,
        mask_id: int = 3,
        random: float = 0.1,
        keep: float = 0.1,
        first: int = 4,
    ) -> None:
        """Set the size of the vocabulary and the params of the block."""
        super().__init__()
        self.v, self.rate, self.mask_id, self.first = v, rate, mask_id, first
        self.random, self.keep = random, keep

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids [...] with noise, and a mask of the selected ones."""
        generator = generator_for(ids, training=self.training)
        words = ids >= self.first
        if isinstance(self.rate, str):
            selected = masked_at_random(words, generator)
        else:
            selected = (uniform(ids, generator) < self.rate) & words
        noisy = ids.masked_fill(selected, self.mask_id)
        if self.random == self.keep == 0.0:
            return noisy, selected
        which = uniform(ids, generator)
        noisy = torch.where(selected & (which < self.keep), ids, noisy)
        if self.random > 0.0:
            drawn = random_ids(ids, self.first, self.v, generator)
            changed = (which >= self.keep) & (which < self.keep + self.random)
            noisy = torch.where(selected & changed, drawn, noisy)
        return noisy, selected


class DropTokens(nn.Module):
    """Replace tokens by one id with a probability.

    Source: Bowman et al. 2016, section 3.1; Gal & Ghahramani 2016, section 4.
    """

    def __init__(
        self, rate: float = 0.1, drop_id: int = 2, first: int = 4, *, in_evaluation: bool = False
    ) -> None:
        """Set the params of the block."""
        super().__init__()
        self.rate, self.drop_id, self.first = rate, drop_id, first
        self.in_evaluation = in_evaluation

    def forward(self, ids: Tensor) -> Tensor:
        """Return ids [...] with some replaced; unchanged in evaluation unless set otherwise."""
        if not self.training and not self.in_evaluation:
            return ids
        generator = generator_for(ids, training=self.training)
        dropped = (uniform(ids, generator) < self.rate) & (ids >= self.first)
        return ids.masked_fill(dropped, self.drop_id)


class ReplaceTokens(nn.Module):
    """Replace tokens by tokens drawn uniformly from the vocabulary.

    Source: Clark et al. 2020, section 3.3; Collobert et al. 2011, section 4.2.
    """

    def __init__(self, v: int, rate: float = 0.15, first: int = 4) -> None:
        """Set the size of the vocabulary and the params of the block."""
        super().__init__()
        self.v, self.rate, self.first = v, rate, first

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids [...] with some replaced, and a mask of those that are others now."""
        generator = generator_for(ids, training=self.training)
        chosen = (uniform(ids, generator) < self.rate) & (ids >= self.first)
        noisy = torch.where(chosen, random_ids(ids, self.first, self.v, generator), ids)
        return noisy, noisy != ids


class SampleTokens(nn.Module):
    """Draw ids from the distribution of logits.

    Source: Clark et al. 2020, section 2.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        """Set the temperature."""
        super().__init__()
        self.temperature = temperature

    @torch.no_grad()
    def forward(
        self, logits: Tensor, ids: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Draw one id for each vector of logits [..., V].

        The largest of the logits with Gumbel noise is a draw from their softmax.

        Args:
            logits: unnormalized scores.
            ids: ids [...] where the mask is false; None to draw all.
            mask: [...], true where an id is drawn.
        """
        scores = logits.float() / self.temperature
        generator = generator_for(logits, training=self.training)
        tiny = torch.finfo(torch.float32).tiny
        noise = -(-uniform(scores, generator).clamp(min=tiny).log()).log()
        drawn = (scores + noise).argmax(-1)
        return drawn if ids is None or mask is None else torch.where(mask, drawn, ids)
