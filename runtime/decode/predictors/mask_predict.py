"""Mask-predict: write all words of an output in parallel, then rewrite the least probable.

The length is predicted first.  Every word begins masked; each iteration writes the masked
words and then masks the least probable words, fewer each time.

Axes: N sentences, C candidate lengths of each, R = N * C rows, T positions of the longest,
V vocabulary, S source positions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ....blocks.registry import registry
from ....graphs.ir.graph import Graph
from ....graphs.passes.partition import partition
from ....specs.findings import InputError
from ...codegen.build import build_sharing
from ...codegen.generated import program_of
from ...data.batches import pad_rows
from ..active_rows import Cancelled
from ..decode import Request, SpecialTokens
from ..inputs import fitting_of
from ..settings import Hypothesis, MaskFields, different
from .text import TextPredictor

LEAST = 0.01
"""Minimum probability of a candidate length, relative to the most probable length."""
Predict = Callable[[Tensor, Tensor], Tensor]
"""Takes words [R, T], some masked, and their padding mask [R, T]; returns logits [R, T, V]."""


@torch.no_grad()
def mask_predict(
    predict: Predict, lengths_NC: Tensor, *, iterations: int, mask: int, never: Collection[int]
) -> list[list[Hypothesis]]:
    """Decode N outputs, each with C candidate lengths.

    After iteration t of I, the n * (I - t) / I least probable of n words are masked again; the
    other words keep the probability with which they were written.

    Args:
        predict: the model.
        lengths_NC: number of words of each output, for each of its candidate lengths.
        iterations: number of iterations I.
        mask: the id of a masked word.
        never: ids that are never written.

    Returns:
        For each sentence its outputs, sorted by average log probability per word, best first.

    Source: Ghazvininejad et al. 2019, section 3.
    """
    lengths_R1 = lengths_NC.flatten()[:, None]
    mask_RT = torch.arange(int(lengths_NC.max()), device=lengths_NC.device) < lengths_R1
    words_RT = torch.full_like(mask_RT, mask, dtype=torch.long)
    log_p_RT = torch.zeros_like(mask_RT, dtype=torch.float32)
    masked_RT, forbidden = mask_RT, sorted({*never, mask})
    for steps_left in reversed(range(iterations)):
        log_p_RTV = torch.log_softmax(predict(words_RT, mask_RT), -1, dtype=torch.float32)
        log_p_RTV[..., forbidden] = -torch.inf
        best_RT, index_RT = log_p_RTV.max(-1)
        words_RT = torch.where(masked_RT, index_RT, words_RT)
        log_p_RT = torch.where(masked_RT, best_RT, log_p_RT)
        count_R1 = lengths_R1 * steps_left // iterations
        if not count_R1.any():
            break
        rank_RT = log_p_RT.masked_fill(~mask_RT, torch.inf).argsort(dim=1, stable=True).argsort(1)
        masked_RT = rank_RT < count_R1
        words_RT = words_RT.masked_fill(masked_RT, mask)
    total_R = log_p_RT.masked_fill(~mask_RT, 0.0).sum(1)
    hypotheses = [
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
        sorted(
            hypotheses[start : start + tried], key=lambda hypothesis: hypothesis.score, reverse=True
        )
        for start in range(0, len(hypotheses), tried)
    ]


def lengths_to_try(score_NL: Tensor, tried: int) -> Tensor:
    """Return the most probable lengths of each output, [N, C], best first.

    Given a length that is clearly wrong, a model repeats a word with confidence, so the
    average would choose that output.  A length that is much less probable than the best is
    therefore replaced by the best.  The paper has no such bound.

    Args:
        score_NL: logits of the lengths 1, 2, 3, ...
        tried: candidate lengths of each output; fewer if `score_NL` has fewer.

    Source: Ghazvininejad et al. 2019, section 3.2.
    """
    best_NC, index_NC = score_NL.topk(min(tried, score_NL.size(1)))
    unlikely_NC = best_NC < best_NC[:, :1] + math.log(LEAST)
    return torch.where(unlikely_NC, index_NC[:, :1], index_NC) + 1


@dataclass(frozen=True)
class MaskPredictor(TextPredictor):
    """Predicts texts with a model that predicts lengths and masked words."""

    masks: MaskFields = field(default_factory=MaskFields, kw_only=True)

    @property
    def rows(self) -> int:
        """Candidate outputs of each row."""
        return self.masks.lengths

    @property
    def _later(self) -> tuple[str, ...]:
        """Inputs that are not available while the source is encoded."""
        return (self.inputs.written, *self.inputs.written_masks)

    @functools.cached_property
    def _parts(self) -> tuple[nn.Module, nn.Module, Graph]:
        """The encoder, the decoder, and the decoder's graph."""
        [model] = self.context.models
        graph = program_of(model).graph
        first, second = partition(graph, self._later, registry(graph.blocks))
        return (
            build_sharing(first, model, part=True),
            build_sharing(second, model, part=True),
            second,
        )

    @torch.inference_mode()
    def decode_requests(
        self,
        requests: Sequence[Request],
        cancelled: Cancelled | None = None,  # noqa: ARG002 - all outputs finish at once
    ) -> list[list[Hypothesis]]:
        """Return the outputs of a batch, best first.

        The source is encoded once, independently of the number of lengths and iterations.

        Raises:
            InputError: a request needs left-to-right search.
        """
        self._check_supported(requests)
        [model] = self.context.models
        device = next(model.parameters()).device
        source = pad_rows(
            [request.source for request in requests], self.source.pad, self.source.eos
        ).to(device)
        read, write, graph = self._parts
        with torch.autocast(device.type, torch.bfloat16, enabled=self.context.half):
            others = [request.others for request in requests]
            values = self.inputs.fixed(source, source != self.source.pad, others)
            first = program_of(read).graph.inputs
            values |= read(**{name: values[name] for name in first})
            score_NL = values["lengths"].float()
            if self.masks.max_length is not None:
                score_NL = score_NL[:, : self.masks.max_length]
            lengths_NC = lengths_to_try(score_NL, self.masks.lengths)
            tried = lengths_NC.size(1)
            fixed = {
                name: values[name].repeat_interleave(tried, _batch_axis(graph, name))
                for name in graph.inputs
                if name not in self._later
            }
            masks = [name for name in self.inputs.written_masks if name in graph.inputs]

            def predict(words_RT: Tensor, mask_RT: Tensor) -> Tensor:
                inputs = {**dict.fromkeys(masks, mask_RT), self.inputs.written: words_RT}
                written = fitting_of(model).fit(inputs)
                logits_RTV: Tensor = write(**fixed, **written)["logits"]
                return logits_RTV[:, : words_RT.size(1)]

            results = mask_predict(
                predict,
                lengths_NC,
                iterations=self.masks.iterations,
                mask=self.target.bos,
                never={self.target.eos, self.target.pad, *SpecialTokens.of(self.target).never},
            )
        decode = self.target.decode
        return [
            different(outputs, lambda hypothesis: decode(hypothesis.tokens))[:1]
            for outputs in results
        ]

    def _check_supported(self, requests: Sequence[Request]) -> None:
        requested = {
            "prefix": any(request.begin for request in requests),
            "include": any(request.include for request in requests),
        }
        if wrong := [name for name, is_requested in requested.items() if is_requested]:
            raise InputError(
                f"mask-predict does not support {', '.join(wrong)}: all words are written at once",
                location="search",
                help="remove the option, or translate with a model that decodes step by step",
            )


def _batch_axis(graph: Graph, name: str) -> int:
    """Return the position of the batch axis of an input."""
    axes = graph.inputs[name].axes
    return next(i for i, axis in enumerate(axes) if graph.spec.axes.get(str(axis)) == "batch")
