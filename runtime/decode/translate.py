"""Translate lines of text, in order.

Lines are sorted by length inside a buffer, decoded in batches and put back in order; a line is
yielded as soon as it and all lines before it are done.  The translation of a line does not depend
on the other lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import nn

from ..data.symbols import Vocabulary, lacking
from ..system.arriving import take
from .active_rows import Cancelled
from .decode import Request, SpecialTokens, decode_ids
from .inputs import Inputs, UsualInputs
from .positions import fitting_of, longest_source, positions_of
from .search.constraints import Avoidance, texts_of_vocabulary
from .settings import BeamSearch, Hypothesis, Sampling

BUFFER = 1000
"""Default number of lines to read ahead."""
FIRST_LINES = 16
"""Lines to read ahead at first where the first answer is wanted soon; doubled until the buffer."""
BATCH_TOKENS = 4096
"""Maximum source tokens of a batch, including padding, times the beam."""
LONGEST_SOURCE = 1000
"""Maximum source tokens of one line; longer lines are truncated with a warning."""

Warn = Callable[[int, str], None]
"""Called with a line number, counted from 1, and a warning about the line."""


@dataclass(frozen=True, slots=True)
class TranslationRequest:
    """One line to translate, with requirements on its translation."""

    text: str
    begin: str = ""
    """Text that the translation must begin with."""
    include: Sequence[str] = ()
    """Words or phrases that the translation must contain."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Encoded values of further columns, by name, that inputs of the model are made of."""
    other_length: int = 0
    """Tokens of the longest text among them."""


@dataclass(frozen=True)
class Translator:
    """A model with its tokenizers, ready to translate."""

    model: nn.Module
    source: Vocabulary
    target: Vocabulary
    search: BeamSearch | Sampling
    half: bool = False
    """Whether to run matrix products in bfloat16."""
    others: tuple[nn.Module, ...] = ()
    """Further models with the same vocabularies; all models' probabilities are averaged."""
    inputs: Inputs = field(default_factory=UsualInputs)
    """What fills the inputs of the models."""
    _avoidance: list[Avoidance] = field(default_factory=list, repr=False, compare=False)
    """Cache of the compiled banned phrases; filled on first use."""

    @property
    def rows(self) -> int:
        """Hypotheses per sentence."""
        return self.search.rows

    @property
    def longest_source(self) -> int:
        """Maximum tokens of a source, without the end token; longer ones are truncated."""
        models = (self.model, *self.others)
        positions = positions_of(*models)
        longest = longest_source(LONGEST_SOURCE, positions)
        for fitting in map(fitting_of, models if positions is not None else ()):
            while longest > 1 and fitting.length("source", longest + 1) > (positions or 0):
                longest -= 1
        return longest

    def translate(
        self,
        lines: Iterable[str | TranslationRequest],
        *,
        buffer: int = BUFFER,
        warn: Warn | None = None,
    ) -> Iterator[str]:
        """Yield the translation of each line, in order.

        An empty line gives an empty line.

        Args:
            lines: one sentence each, as text or as requests.
            buffer: lines to read ahead; 1 translates each line as soon as it arrives.
            warn: called for each line that is truncated, has unknown characters, or must contain
                what `avoid` bans.
        """
        for hypotheses in self.hypotheses(lines, buffer=buffer, first=FIRST_LINES, warn=warn):
            yield self.target.decode(hypotheses[0].tokens) if hypotheses else ""

    def hypotheses(
        self,
        lines: Iterable[str | TranslationRequest],
        *,
        buffer: int = BUFFER,
        first: int | None = None,
        warn: Warn | None = None,
        callback: Callable[[int], None] | None = None,
        cancelled: Cancelled | None = None,
    ) -> Iterator[list[Hypothesis]]:
        """Yield the `nbest` hypotheses of each line, best first; none for an empty line.

        A line is yielded after the batch that completes it and all lines before it.  If `lines`
        are `Arriving`, those that have arrived are translated without waiting for others.

        Args:
            lines: as in `translate`.
            buffer: lines to read ahead.
            first: lines to read ahead at first; the number is doubled until it is `buffer`.
                Default: `buffer`.
            warn: called for each line that is truncated, has unknown characters, or must contain
                what `avoid` bans.
            callback: called after each batch with the number of lines it completed.
            cancelled: returns the lines, counted from 0, whose output is not needed; called
                repeatedly. The hypotheses yielded for them are meaningless.
        """
        stream, start, ahead = iter(lines), 0, min(buffer, first or buffer)
        while chunk := take(stream, ahead):
            requests = [
                TranslationRequest(line) if isinstance(line, str) else line for line in chunk
            ]
            yield from self._chunk(requests, start, warn, callback, cancelled)
            start += len(chunk)
            if len(chunk) == ahead:
                ahead = min(2 * ahead, buffer)

    def _chunk(
        self,
        lines: Sequence[TranslationRequest],
        start: int,
        warn: Warn | None,
        callback: Callable[[int], None] | None,
        cancelled: Cancelled | None,
    ) -> Iterator[list[Hypothesis]]:
        """Yield the hypotheses of each line, best first; none for empty lines."""
        requests, warn = [], warn or _ignore
        sources = self.read([line.text for line in lines], start, warn)
        if start == 0:
            self._warn_of_avoid(warn)
        for number, (line, ids) in enumerate(zip(lines, sources, strict=True), start + 1):
            begin = self._written(line.begin, "the prefix", partial(warn, number))
            include = [
                self._written(phrase, "a required phrase", partial(warn, number))
                for phrase in line.include
            ]
            request = Request(
                ids,
                begin,
                [phrase for phrase in include if phrase],
                location=f"line {number}",
                others=line.others,
                other_length=line.other_length,
            )
            requests.append(request)
            for phrase in self._permitted(request):
                warn(number, f"'avoid' bans '{phrase}', but the required text has it, and wins")
        filled = [
            index
            for index, request in enumerate(requests)
            if request.source or request.others or request.other_length
        ]
        finished: dict[int, list[Hypothesis]] = {
            index: [] for index in range(len(requests)) if index not in {*filled}
        }
        if callback is not None:
            callback(len(finished))
        yielded = 0
        lengths = [max(len(requests[i].source), requests[i].other_length) for i in filled]
        for rows in self._batches(lengths, filled):
            while yielded in finished:
                yield finished.pop(yielded)
                yielded += 1
            cancelled_indices = (
                None if cancelled is None else partial(_places, rows, start, cancelled)
            )
            decoded = self.decode_requests([requests[index] for index in rows], cancelled_indices)
            finished |= zip(rows, decoded, strict=True)
            if callback is not None:
                callback(len(rows))
        yield from (finished[index] for index in range(yielded, len(requests)))

    def read(self, texts: Sequence[str], start: int, warn: Warn) -> list[list[int]]:
        """Return the ids of sources, which are truncated to what the model can read.

        Args:
            texts: the sources.
            start: number of lines before them.
            warn: called for each source that is truncated, or has characters that are unknown.
        """
        longest, sources = self.longest_source, self.source.encode_many(texts)
        for number, (text, ids) in enumerate(zip(texts, sources, strict=True), start + 1):
            if len(ids) > longest:
                warn(number, f"{len(ids)} tokens, truncated to {longest}")
            if problem := lacking(self.source, text, ids, "the source"):
                warn(number, problem)
        return [ids[:longest] for ids in sources]

    def _written(self, text: str, what: str, warn: Callable[[str], None]) -> list[int]:
        """Return the ids of a text that an output must contain."""
        ids = self.target.encode(text) if text else []
        if problem := lacking(self.target, text, ids, what):
            warn(problem)
        return ids

    def _warn_of_avoid(self, warn: Warn) -> None:
        """Warn of phrases to avoid that no output can contain."""
        for phrase in self.search.avoid:
            ids = self.target.encode(phrase)
            if problem := lacking(self.target, phrase, ids, f"'{phrase}' in 'avoid'"):
                warn(1, problem)

    def _permitted(self, request: Request) -> list[str]:
        """Return the phrases to avoid that the required text of a request contains."""
        required = [request.begin, *request.include]
        return self._avoid().required(required) if self.search.avoid and any(required) else []

    def _batches(self, lengths: Sequence[int], lines: Sequence[int]) -> list[list[int]]:
        """Divide lines of similar lengths into batches; the batch of the first line comes first.

        Args:
            lengths: source tokens of each line, without the end token.
            lines: what to call the lines in the batches, ascending.
        """
        order = sorted(range(len(lines)), key=lengths.__getitem__, reverse=True)
        batches = []
        while order:
            width = (lengths[order[0]] + 1) * self.rows
            count = recurring(max(1, BATCH_TOKENS // width))
            batches.append([lines[index] for index in order[:count]])
            order = order[count:]
        return sorted(batches, key=min)

    def decode(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Return the hypotheses of a batch of sources, best first.

        Args:
            sources: ids of each sentence, without the end token.
        """
        return self.decode_requests([Request(source) for source in sources])

    def decode_requests(
        self, requests: Sequence[Request], cancelled: Cancelled | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of a batch, best first.

        Args:
            requests: sources, each with at least one token.
            cancelled: returns the requests whose output is not needed.

        Raises:
            InputError: the prefix and the required phrases of a request do not fit into the
                positions of the models.
        """
        with_end = [
            replace(request, source=[*request.source, self.source.eos]) for request in requests
        ]
        special_tokens = SpecialTokens.of(self.target)
        models = (self.model, *self.others)
        avoidance = self._avoid() if self.search.avoid else None
        return decode_ids(
            models,
            with_end,
            special_tokens,
            self.search,
            avoidance=avoidance,
            inputs=self.inputs,
            text_of=self.target.decode,
            half=self.half,
            cancelled=cancelled,
        )

    def _avoid(self) -> Avoidance:
        if not self._avoidance:
            texts = texts_of_vocabulary(self.target)
            self._avoidance.append(Avoidance(self.search.avoid, texts, [self.target.eos]))
        return self._avoidance[0]


def _ignore(*_: object) -> None:
    """Do nothing."""


def recurring(count: int) -> int:
    """Return the largest of 1, 2, ..., 8, 10, 12, 14, 16, 20, 24, ... up to a count.

    Matrix products on the CPU are compiled for each number of rows.  With four numbers in each
    octave, that work is repeated rarely, and at most a fifth of a batch is left for the next.
    """
    unit = 1 << max(0, count.bit_length() - 3)
    return count // unit * unit


def _places(rows: Sequence[int], start: int, cancelled: Cancelled) -> list[int]:
    """Return the rows of a batch whose lines are cancelled.

    Args:
        rows: for each row, the index of its line in the buffer.
        start: number of lines before the buffer.
        cancelled: returns the cancelled lines.
    """
    lines = set(cancelled())
    return [index for index, row in enumerate(rows) if start + row in lines] if lines else []
