"""Predict continuations of texts with a decoder-only model: by beams, greedily or by sampling."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ....graphs.ir.graph import Graph
from ....graphs.ir.traverse import position_limits
from ....specs.findings import InputError
from ..decode import Request, SpecialTokens, decode_ids, refuse_ids
from ..settings import GenerateSettings, Sampling
from .feeding import Sources
from .predictor import Answer, Context, Row
from .text import Streaming, Warn

if TYPE_CHECKING:
    from ..active_rows import Cancelled
    from ..settings import Hypothesis


@dataclass(frozen=True)
class Continuing(Streaming):
    """Continues the text of a column; an empty one without a column."""

    settings: GenerateSettings

    @classmethod
    def of(
        cls,
        context: Context,
        settings: GenerateSettings,
        prefix: str | None = None,
        include: str | None = None,
    ) -> Continuing:
        """Return the predictor of a model.

        Args:
            context: the model and its columns.
            settings: how continuations are written.
            prefix: key of the text that is continued; None for an empty text.
            include: key of the phrases that each continuation contains.

        Raises:
            InputError: the model cannot generate, or columns cannot fill its inputs.
        """
        graph = context.graph
        fixed = [name for name, type_ in graph.inputs.items() if graph.step_axis not in type_.axes]
        check_generates(graph, fixed)
        inputs = replace(Sources.of(context), source=None)
        words, ends = context.prompts(context.answers)
        predictor = cls(
            context,
            inputs,
            settings.search(),
            words,
            ends,
            settings,
            prefix=prefix,
            include=include,
            risk=settings.risk(),
        )
        _ = predictor.avoidance  # an error if tokens have no texts
        return predictor

    def length(self, request: Request) -> int:
        """Return the tokens of a prompt with its continuation."""
        return len(request.prompt) + self.settings.max_new

    def answer(self, hypothesis: Hypothesis) -> Answer:
        """Return the answer of a continuation; samples are compared by their probability."""
        answer = super().answer(hypothesis)
        sampled = isinstance(self.search, Sampling)
        return replace(answer, score=hypothesis.log_probability) if sampled else answer

    def requests(self, rows: Sequence[Row], start: int, warn: Warn) -> list[Request]:
        """Return the prompt of each row, and what its continuation contains."""
        requests = []
        for index, row in enumerate(rows, start):
            text, tell = self._text(row, self.prefix, index), partial(warn, index + 1)
            prompt = self.words.prompt(text)
            if problem := self.words.lacking(text, prompt, "the prompt"):
                tell(problem)
            if not prompt:
                raise InputError(
                    "the prompt is empty",
                    location=f"{self.what} {index + 1}",
                    help=f"remove the {self.what}",
                )
            others, _ = self.inputs.encoded(row, index)
            phrases = self._phrases(row, index, tell)
            requests.append(Request((), prompt=prompt, include=phrases, others=others))
        return requests

    def decode_requests(
        self,
        requests: Sequence[Request],
        cancelled: Cancelled | None = None,  # noqa: ARG002 - searches of sources can be cancelled
    ) -> list[list[Hypothesis]]:
        """Return the continuations of each prompt: samples as they were drawn, or the best beams.

        A continuation depends only on its own prompt and the seed.  It ends where the model has no
        more positions.  Prompts of different lengths are continued together where a row needs
        nothing but its own tokens, and otherwise those of one length.

        Raises:
            InputError: a prompt is empty, has an id outside the vocabulary, or has more tokens than
                the model has positions.
        """
        graph = self.context.graph
        prompts = [request.prompt for request in requests]
        refuse_ids("prompt", prompts, int(graph.inputs[self.inputs.written].size or 0))
        positions = min(position_limits(graph), default=None)
        longest = max(map(len, prompts), default=0)
        if positions is not None and longest > positions:
            raise InputError(
                f"the prompt has {longest} tokens, but the model has {positions} positions",
                location="prompt",
                help="shorten it",
            )
        numbered = [
            replace(request, location=f"prompt {number}")
            for number, request in enumerate(requests, 1)
        ]
        hypotheses: dict[int, list[Hypothesis]] = {}
        for rows in self._together(requests):
            decoded = decode_ids(
                self.context.models,
                [numbered[row] for row in rows],
                SpecialTokens(0, 0, 0, ends=self.ends),
                self.search,
                avoidance=self.avoidance,
                inputs=self.inputs,
                text_of=self.words.decode,
                half=self.context.half,
            )
            hypotheses |= zip(rows, decoded, strict=True)
        return [hypotheses[row] for row in range(len(requests))]

    def _together(self, requests: Sequence[Request]) -> Iterator[list[int]]:
        """Yield the rows that are decoded together."""
        search = self.search
        alone = isinstance(search, Sampling) or search.beam == 1
        restricted = search.avoid or search.min_length or search.no_repeat
        restricted = restricted or search.repetition_penalty > 1
        if alone and not restricted and not any(request.include for request in requests):
            if requests:
                yield [*range(len(requests))]
            return
        by_length: dict[int, list[int]] = {}
        for row, request in enumerate(requests):
            by_length.setdefault(len(request.prompt), []).append(row)
        yield from by_length.values()


def check_generates(graph: Graph, fixed: Collection[str] = ()) -> str:
    """Return the input of ids that a decoder-only model writes.

    Args:
        graph: graph of the model.
        fixed: inputs without the step axis for which there are values.

    Raises:
        InputError: it has other inputs, no step axis or no logits.
    """
    moving = {n: t.kind for n, t in graph.inputs.items() if graph.step_axis in t.axes}
    ids = [name for name, kind in moving.items() if kind == "ids"]
    if graph.step_axis is None or len(ids) != 1 or "logits" not in graph.outputs:
        raise InputError(
            "generation needs a spec with a step axis, whose only input is ids, and 'logits'",
            location=graph.source,
            help='declare one input of ids, such as "tokens": "ids:vocab[B T]", and set \'step\'',
        )
    others = [n for n, kind in moving.items() if kind not in {"ids", "mask"}]
    others += [n for n in graph.inputs if n not in moving and n not in fixed]
    if others:
        raise InputError(
            f"generation needs a spec whose only input is ids, but '{graph.name}' also reads"
            f" {', '.join(map(repr, others))}",
            location=graph.source,
            help="use 'weft predict' with rows that have the columns of these inputs",
        )
    return ids[0]
