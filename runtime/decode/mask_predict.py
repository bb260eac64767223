"""Mask-predict: all words of an output at once, then those that seem wrong again.

The length is predicted first.  Every word begins masked; each iteration writes the
masked words and masks the least probable of all, fewer each time.

Axes: N sentences, C lengths tried for each, R = N * C rows, T positions of the longest,
V vocabulary, S source positions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn

from ...blocks.registry import registry
from ...graphs.ir.graph import Graph
from ...graphs.passes.partition import halves
from ...specs.findings import InputError
from ..codegen.build import build_sharing, program_of
from ..data.batches import pad_rows
from .active_rows import Cancelled
from .decode import Request
from .settings import Hypothesis
from .translate import Translator

LEAST = 0.01
"""Of the best length's probability, what another must have to be tried."""
LATER = ("target", "target_mask")
"""Inputs that are not there while the source is read."""
Predict = Callable[[Tensor, Tensor], Tensor]
"""From words [R, T], some masked, and which positions are there [R, T] to logits [R, T, V]."""


@torch.no_grad()
def mask_predict(
    predict: Predict, lengths_NC: Tensor, *, iterations: int, mask: int, never: Collection[int]
) -> list[list[Hypothesis]]:
    """Write N outputs, each in C lengths.

    After iteration t of I the n * (I - t) / I least probable of n words are masked, and
    words that are not masked keep the probability with which they were written.

    Args:
        predict: the model.
        lengths_NC: words of each output, in each of its lengths.
        iterations: how often words are written, I.
        mask: the id that stands for a word not written yet.
        never: ids that are no words of an output.

    Returns:
        For each sentence its outputs, that with the most probable words on average first.

    Source: Ghazvininejad et al. 2019, section 3.
    """
    lengths_R1 = lengths_NC.flatten()[:, None]
    mask_RT = torch.arange(int(lengths_NC.max()), device=lengths_NC.device) < lengths_R1
    words_RT = torch.full_like(mask_RT, mask, dtype=torch.long)
    log_p_RT = torch.zeros_like(mask_RT, dtype=torch.float32)
    masked_RT, forbidden = mask_RT, sorted({*never, mask})
    for left in reversed(range(iterations)):
        log_p_RTV = torch.log_softmax(predict(words_RT, mask_RT), -1, dtype=torch.float32)
        log_p_RTV[..., forbidden] = -torch.inf
        best_RT, index_RT = log_p_RTV.max(-1)
        words_RT = torch.where(masked_RT, index_RT, words_RT)
        log_p_RT = torch.where(masked_RT, best_RT, log_p_RT)
        count_R1 = lengths_R1 * left // iterations
        if not count_R1.any():
            break
        rank_RT = log_p_RT.masked_fill(~mask_RT, torch.inf).argsort(dim=1, stable=True).argsort(1)
        masked_RT = rank_RT < count_R1
        words_RT = words_RT.masked_fill(masked_RT, mask)
    total_R = log_p_RT.masked_fill(~mask_RT, 0.0).sum(1)
    found = [
        Hypothesis(
            tokens=tuple(words[:length]),
            log_probability=total,
            score=total / length,
            finished=True,
        )
        for words, length, total in zip(
            words_RT.tolist(), lengths_NC.flatten().tolist(), total_R.tolist(), strict=True
        )
    ]
    tried = lengths_NC.size(1)
    return [
        sorted(found[start : start + tried], key=lambda one: one.score, reverse=True)
        for start in range(0, len(found), tried)
    ]


def lengths_to_try(score_NL: Tensor, tried: int) -> Tensor:
    """Return the most probable lengths of each output, [N, C], best first.

    Given a length that is plainly wrong, a model repeats a word with confidence, and so
    the average would choose it.  A length that is much less probable than the best is
    not tried, therefore; the best stands in its place.  The paper has no such bound.

    Args:
        score_NL: logits of 1, 2, 3, ... words.
        tried: lengths of each output, as far as there are so many.

    Source: Ghazvininejad et al. 2019, section 3.2.
    """
    best_NC, index_NC = score_NL.topk(min(tried, score_NL.size(1)))
    unlikely_NC = best_NC < best_NC[:, :1] + math.log(LEAST)
    return torch.where(unlikely_NC, index_NC[:, :1], index_NC) + 1


class MaskPredictor(Translator):
    """A model that predicts lengths and masked words, ready to translate."""

    @property
    def rows(self) -> int:
        """Outputs that are worked on for each sentence."""
        return self.search.lengths

    @functools.cached_property
    def _halves(self) -> tuple[nn.Module, nn.Module, Graph]:
        """What reads the source, what writes the target, and the graph of the latter."""
        graph = program_of(self.model).graph
        first, second = halves(graph, LATER, registry())
        return build_sharing(first, self.model), build_sharing(second, self.model), second

    @torch.inference_mode()
    def decode_requests(
        self,
        requests: Sequence[Request],
        cancelled: Cancelled | None = None,  # noqa: ARG002 - all words of all are written together
    ) -> list[list[Hypothesis]]:
        """Return the outputs of a batch, best first.

        The source is read once, however many lengths and iterations there are.

        Raises:
            InputError: something is asked for that only a search from left to right can do.
        """
        self._refuse_what_it_cannot(requests)
        device = next(self.model.parameters()).device
        source = pad_rows([one.source for one in requests], self.source.pad, self.source.eos).to(
            device
        )
        read, write, graph = self._halves
        with torch.autocast(device.type, torch.bfloat16, enabled=self.half):
            known = {"source": source, "source_mask": source != self.source.pad}
            known |= read(**known)
            score_NL = known["lengths"].float()
            if self.search.max_length is not None:
                score_NL = score_NL[:, : self.search.max_length]
            lengths_NC = lengths_to_try(score_NL, self.search.lengths)
            tried = lengths_NC.size(1)
            fixed = {
                name: known[name].repeat_interleave(tried, _batch_of(graph, name))
                for name in graph.inputs
                if name not in LATER
            }
            found = mask_predict(
                lambda words, mask: write(**fixed, target=words, target_mask=mask)["logits"],
                lengths_NC,
                iterations=self.search.iterations,
                mask=self.target.bos,
                never={self.target.eos, self.target.pad},
            )
        return [outputs[: self.search.nbest] for outputs in found]

    def _refuse_what_it_cannot(self, requests: Sequence[Request]) -> None:
        search = self.search
        asked = {
            "prefix": any(one.begin for one in requests),
            "include": any(one.include for one in requests),
            "ensemble": self.others,
            "sample": search.sample is not None,
            "avoid": search.avoid,
            "groups": search.groups > 1,
            "no_repeat": search.no_repeat,
            "min_length": search.min_length,
        }
        if wrong := [name for name, is_asked in asked.items() if is_asked]:
            raise InputError(
                f"mask-predict writes all words at once and knows no {', '.join(wrong)}",
                place="search",
                help="leave it out, or translate with a model that decodes step by step",
            )


def _batch_of(graph: Graph, name: str) -> int:
    """Return which axis of an input is that of sentences."""
    axes = graph.inputs[name].axes
    return next(i for i, axis in enumerate(axes) if graph.spec.axes.get(str(axis)) == "batch")
