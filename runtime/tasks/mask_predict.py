"""Mask-predict task: non-autoregressive translation in a few iterations.

A spec for this task needs, in addition to the inputs of translation, the input `target_mask`
(mask), and in addition to the output `logits` the output `lengths`: scores of the lengths
1, 2, 3, ... in words.  The beginning token stands for a masked word.

Source: Ghazvininejad et al. 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F

from ...blocks.kernels.noise import masked_at_random
from ...graphs.ir.graph import Graph
from ...graphs.ir.moving import moving_values
from ...specs.findings import InputError
from ..data.batches import Batch
from ..decode.mask_predict import LATER, MaskPredictor
from ..decode.settings import SearchSettings
from ..train.checks.needs import MASK_PREDICT
from ..train.loss import LossSums, with_auxiliary
from ..train.transforms.fused_linear_cross_entropy import run_and_compare
from .translation import Translation, check_ports, check_vocabulary

LENGTH_WEIGHT = 0.1
"""Weight of the length loss of a sentence relative to the loss of a word."""


class MaskPredict(Translation):
    """Mask-predict task."""

    def check(self, graph: Graph) -> None:
        """Check that a graph has the inputs, outputs and sizes of this task.

        Raises:
            InputError: an input or output is missing or has the wrong kind or size.
        """
        check_ports(graph, MASK_PREDICT)
        if graph.root.outputs["lengths"] in moving_values(graph.root, frozenset(LATER)):
            raise InputError(
                "'lengths' depends on the target, whose length it predicts",
                place=f"{graph.source}#/outputs/lengths",
                help="compute it from values that depend only on 'source' and 'source_mask'",
            )
        check_vocabulary(graph, self.source, self.target)

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the loss of a batch; masks are drawn from torch's global generator."""
        return self._loss(model, batch, None)

    def _loss(self, model: nn.Module, batch: Batch, generator: torch.Generator | None) -> LossSums:
        """Return the mean loss of masked words plus `LENGTH_WEIGHT` times that of lengths.

        Both are scaled by the number of target tokens, by which the trainer divides.
        """
        pad = self.target.pad
        tokens = (batch.target != pad).sum()
        words = batch.target[:, :-1]
        words = words.masked_fill(words == self.target.eos, pad)
        mask = words != pad
        masked = masked_at_random(mask, generator)
        inputs = {
            "source": batch.source,
            "source_mask": batch.source != self.source.pad,
            "target": words.masked_fill(masked, self.target.bos),
            "target_mask": mask,
        }
        outputs, sums = run_and_compare(
            model,
            self.head,
            inputs,
            words.masked_fill(~masked, pad),
            smoothing=self.settings.smoothing,
            pad=pad,
            spread=self.settings.spread,
            counts={"source": batch.source_tokens},
        )
        longest = outputs["lengths"].size(1)
        of_length = F.cross_entropy(
            outputs["lengths"].float(), mask.sum(1).clamp(1, longest) - 1, reduction="mean"
        )
        share = tokens / sums.tokens.clamp(min=1)
        words_and_length = LossSums(
            loss=sums.loss * share + LENGTH_WEIGHT * of_length * tokens,
            nll=sums.nll * share,
            tokens=tokens,
        )
        own = [outputs[name] for name in self.losses]
        return with_auxiliary(words_and_length, own, self.settings.auxiliary)

    @torch.no_grad()
    def perplexity(
        self, model: nn.Module, batches: Iterable[Batch], device: torch.device
    ) -> dict[str, float]:
        """Return the unsmoothed nll in nats per masked word, and its exponential.

        The generator has a fixed seed, so every call masks the same words.
        """
        generator = torch.Generator(device=device)
        generator.manual_seed(0)
        total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
        for batch in batches:
            total += self._loss(model, batch.to(device), generator).nll
            tokens += batch.target_tokens
        nll = total.item() / max(tokens, 1)
        return {"nll": nll, "perplexity": math.exp(min(nll, 700.0))}

    def translator(
        self, model: nn.Module, search: SearchSettings, *, half: bool = False
    ) -> MaskPredictor:
        """Return a translator that uses the model."""
        return MaskPredictor(model, self.source, self.target, search, half)
