"""Predict continuations of texts with a decoder-only model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ....specs.findings import InputError
from ..decode import Request
from ..generate import check_generates, generate_with
from .feeding import Sources
from .predictor import Answer, Context, Row
from .text import Streaming, Warn

if TYPE_CHECKING:
    from ...data.prompts import Prompts
    from ..active_rows import Cancelled
    from ..search.constraints import Avoidance
    from ..settings import GenerateSettings, Hypothesis

PROMPT_TOKENS = 4096
"""Maximum tokens of a batch of prompts with their continuations."""


@dataclass(frozen=True)
class Continuing(Streaming):
    """Continues the text of a column; an empty one without a column."""

    settings: GenerateSettings
    prompts: Prompts
    """Tokenizer of prompts and continuations."""
    ends: tuple[int, ...]
    """The tokens that end a continuation."""
    batch_tokens: int = PROMPT_TOKENS
    """Maximum tokens of a batch."""

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
        prompts, ends = context.prompts(context.answers)
        predictor = cls(context, inputs, settings, prompts, ends, prefix=prefix, include=include)
        _ = predictor.avoidance  # an error if phrases have no tokens
        return predictor

    @cached_property
    def avoidance(self) -> Avoidance | None:
        """The phrases that no continuation contains, compiled; None without any."""
        from ..search.constraints import Avoidance

        avoid = self.settings.avoid
        return Avoidance(avoid, self.prompts.texts, self.ends) if avoid else None

    @property
    def avoided(self) -> tuple[str, ...]:
        """The phrases that no continuation contains."""
        return self.settings.avoid

    def requests(self, rows: Sequence[Row], start: int, warn: Warn) -> list[Request]:
        """Return the prompt of each row, and what its continuation contains."""
        requests = []
        for index, row in enumerate(rows, start):
            text, tell = self._text(row, self.prefix, index), partial(warn, index + 1)
            prompt = self.prompts.prompt(text)
            if problem := self.prompts.lacking(text, prompt, "the prompt"):
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
        cancelled: Cancelled | None = None,  # noqa: ARG002 - searches of sources alone can be cancelled
    ) -> list[list[Hypothesis]]:
        """Return the continuations of some prompts, best first or as they were drawn."""
        return generate_with(
            self.context.models[0],
            requests,
            self.settings,
            eos=self.ends,
            inputs=self.inputs,
            avoidance=self.avoidance,
            text_of=self.prompts.decode,
            half=self.context.half,
        )

    def answer(self, hypothesis: Hypothesis) -> Answer:
        """Return the answer of a continuation; samples are compared by their probability."""
        sampled = self.settings.temperature > 0
        score = hypothesis.log_probability if sampled else hypothesis.score
        return Answer(self.prompts.decode(hypothesis.tokens), score, hypothesis=hypothesis)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text inside a continuation."""
        return self.prompts.encode(text)

    def lacking(self, text: str, ids: Sequence[int], what: str) -> str:
        """Return what to warn about a text of which the vocabulary lacks characters, or ""."""
        return self.prompts.lacking(text, ids, what)

    def length(self, request: Request) -> int:
        """Return the tokens of a prompt."""
        return len(request.prompt)

    def together(self, longest: int) -> int:
        """Return the number of rows that are continued together."""
        width = (longest + self.settings.max_new) * self.settings.search().rows
        return max(1, self.batch_tokens // width)
