"""Predict texts: from rows to what a search writes, in order, streamed.

Rows are sorted by length inside a buffer, decoded in batches and put back in order; the answers to
a row are yielded as soon as it and all rows before it are done.  They do not depend on other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from ....specs.findings import InputError, did_you_mean
from ...data.columns.values import text_of
from ...data.prompts import PromptTokenizer, VocabularyPrompts
from ...data.symbols import Vocabulary, lacking
from ...system.arriving import take
from ..decode import Request, SpecialTokens, decode_ids
from ..inputs import fitting_of, longest_source, positions_of
from ..settings import BUFFER, BeamSearch, Risk, Sampling
from .feeding import Sources
from .predictor import Answer, Context, Row, best_of, evaluating, read_value

if TYPE_CHECKING:
    from ..active_rows import Cancelled
    from ..search.constraints import Avoidance
    from ..settings import Hypothesis

FIRST_ROWS = 16
"""Rows to read ahead at first where the first answer is wanted soon; doubled until the buffer."""
LONGEST_SOURCE = 1000
"""Maximum source tokens of one row; longer sources are truncated with a warning."""

Warn = Callable[[int, str], None]
"""Called with the number of a row, counted from 1, and a warning about it."""
LINE: Row = {"source": "", "prefix": "", "include": ()}
"""The row of an empty line, without requirements on its output."""


def row_of_line(line: str | Mapping[str, Any]) -> Row:
    """Return the row of a line of text, which may have requirements on its output.

    Args:
        line: a text, or a row with `source` and, optionally, `prefix`, with which the output
            begins, and `include`, phrases that it contains: a list, or a text separated by tabs.

    Raises:
        InputError: the row has another key.
    """
    if isinstance(line, str):
        return {**LINE, "source": line}
    if unknown := sorted(line.keys() - LINE.keys()):
        help_ = did_you_mean(unknown[0], LINE)
        raise InputError(f"a line of text has no '{unknown[0]}'", help=help_)
    return {**LINE, **line}


@dataclass(frozen=True)
class Streaming:
    """Predicts texts that are written token by token, row after row."""

    context: Context
    inputs: Sources
    """What fills the inputs of the models."""
    search: BeamSearch | Sampling
    words: PromptTokenizer
    """Tokenizer of the outputs."""
    ends: tuple[int, ...]
    """The tokens that end an output."""
    prefix: str | None = field(default=None, kw_only=True)
    """Key of a row's text with which its output begins, or that it continues."""
    include: str | None = field(default=None, kw_only=True)
    """Key of the phrases that each output contains: a list, or a text separated by tabs."""
    risk: Risk | None = field(default=None, kw_only=True)
    """How outputs are chosen by minimum Bayes risk; None if the search chooses them."""
    what: str = field(default="row", kw_only=True)
    """What messages call a row."""
    batch_tokens: int = field(default=4096, kw_only=True)
    """Maximum tokens of a batch, including padding, times the hypotheses of a row."""

    def requests(self, rows: Sequence[Row], start: int, warn: Warn) -> list[Request]:
        """Return what is decoded for each row.

        Args:
            rows: raw values by column.
            start: number of rows before them.
            warn: called for each text that is truncated or has unknown characters.

        Raises:
            InputError: a row lacks a value, or it is invalid.
        """
        raise NotImplementedError

    def decode_requests(
        self, requests: Sequence[Request], cancelled: Cancelled | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of a batch, best first or as they were drawn.

        Args:
            requests: sources without end tokens, or prompts, each with at least one token.
            cancelled: returns the requests whose output is not needed.

        Raises:
            InputError: a request does not fit into the positions of the models.
        """
        raise NotImplementedError

    def length(self, request: Request) -> int:
        """Return the tokens of a request in a batch."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Hypotheses of a row that are decoded together."""
        return max(self.search.rows, self.risk.rows if self.risk else 0)

    @property
    def nbest(self) -> int:
        """Outputs of a row that are returned."""
        return self.search.nbest if self.risk is None else self.risk.nbest

    @cached_property
    def avoidance(self) -> Avoidance | None:
        """The phrases that no output contains, compiled for the vocabulary; None without any."""
        if not self.search.avoid:
            return None
        from ..search.constraints import Avoidance

        return Avoidance(self.search.avoid, self.words.texts, self.ends)

    def answer(self, hypothesis: Hypothesis) -> Answer:
        """Return the answer of a hypothesis."""
        text = self.words.decode(hypothesis.tokens)
        return Answer(text, hypothesis.score, hypothesis=hypothesis)

    def predict(self, rows: Sequence[Row]) -> list[str]:
        """Return the text for each row; an empty one for an empty text."""
        return [answer.value for answer in self.answers(rows)]

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the best text for each row, and the others that were requested."""
        with evaluating(self.context.models):
            candidates = list(self.stream(rows, warn=self.context.warn))
        return [
            best_of(sorted(answers, key=lambda answer: -answer.score)) if answers else Answer("")
            for answers in candidates
        ]

    def stream(
        self,
        rows: Iterable[Row],
        *,
        buffer: int = BUFFER,
        first: int | None = None,
        warn: Warn | None = None,
        callback: Callable[[int], None] | None = None,
        cancelled: Cancelled | None = None,
    ) -> Iterator[list[Answer]]:
        """Yield the answers to each row as the search returns them; none for an empty text.

        The answers to a row are yielded after the batch that completes it and all rows before it.
        If `rows` are `Arriving`, those that have arrived are answered without waiting for others.

        Args:
            rows: raw values by column.
            buffer: rows to read ahead; 1 answers each row as soon as it arrives.
            first: rows to read ahead at first; the number is doubled until it is `buffer`.
                Default: `buffer`.
            warn: called for each row that is truncated, has unknown characters, or must contain
                what `avoid` bans.
            callback: called after each batch with the number of rows it completed.
            cancelled: returns the rows, counted from 0, whose output is not needed; called
                repeatedly. The answers yielded for them are meaningless.

        Raises:
            InputError: a row lacks a value, or the models cannot read it.
        """
        stream, start, ahead = iter(rows), 0, min(buffer, first or buffer)
        while chunk := take(stream, ahead):
            yield from self._chunk(chunk, start, warn or _ignore, callback, cancelled)
            start += len(chunk)
            if len(chunk) == ahead:
                ahead = min(2 * ahead, buffer)

    def _chunk(
        self,
        rows: Sequence[Row],
        start: int,
        warn: Warn,
        callback: Callable[[int], None] | None,
        cancelled: Cancelled | None,
    ) -> Iterator[list[Answer]]:
        """Yield the answers to each row; none for empty texts."""
        if start == 0:
            for phrase in self.search.avoid:
                self._written(phrase, f"'{phrase}' in 'avoid'", partial(warn, 1))
        requests = self.requests(rows, start, warn)
        filled = [
            index
            for index, request in enumerate(requests)
            if request.source or request.prompt or request.others or request.other_length
        ]
        finished: dict[int, list[Answer]] = {
            index: [] for index in range(len(requests)) if index not in {*filled}
        }
        if callback is not None:
            callback(len(finished))
        yielded = 0
        for batch in self._batches([requests[index] for index in filled], filled):
            while yielded in finished:
                yield finished.pop(yielded)
                yielded += 1
            cancelled_indices = (
                None if cancelled is None else partial(_places, batch, start, cancelled)
            )
            outputs = self._outputs(
                [requests[index] for index in batch],
                [rows[index] for index in batch],
                cancelled_indices,
            )
            finished |= zip(batch, outputs, strict=True)
            if callback is not None:
                callback(len(batch))
        yield from (finished[index] for index in range(yielded, len(requests)))

    def _outputs(
        self, requests: Sequence[Request], rows: Sequence[Row], cancelled: Cancelled | None
    ) -> list[list[Answer]]:
        """Return the answers to a batch; arguments as of `decode_requests`, and the rows."""

        def written(predictor: Streaming) -> list[list[Answer]]:
            decoded = predictor.decode_requests(requests, cancelled)
            return [[self.answer(hypothesis) for hypothesis in texts] for texts in decoded]

        risk, outputs = self.risk, written(self)
        if risk is None:
            return outputs
        from .risk import least_risk

        further: list[list[Answer]] = [[] for _ in requests]
        if risk.beams is not None:
            further = written(replace(self, search=risk.beams))
        drawn, column = isinstance(self.search, Sampling), self.context.answers
        return [
            least_risk(risk, compared, others, self.row_of(row), column, drawn=drawn)
            for compared, others, row in zip(outputs, further, rows, strict=True)
        ]

    def row_of(self, row: Row) -> Row:
        """Return a row with the keys of the columns, for metrics that read the source."""
        return row

    def _text(self, row: Row, key: str | None, index: int) -> str:
        """Return the text of a key in a row; empty without a key."""
        if key is None:
            return ""
        return read_value(row, key, index, lambda value: text_of(value, key))

    def _phrases(self, row: Row, index: int, warn: Callable[[str], None]) -> list[list[int]]:
        """Return the ids of the phrases that the output of a row contains."""
        key = self.include
        if key is None:
            return []
        phrases = read_value(row, key, index, partial(_phrases_in, key))
        ids = [self._written(phrase, "a required phrase", warn) for phrase in phrases]
        return [phrase for phrase in ids if phrase]

    def _written(self, text: str, what: str, warn: Callable[[str], None]) -> list[int]:
        """Return the ids of a text that outputs must or must not contain."""
        ids = self.words.encode(text) if text else []
        if problem := self.words.lacking(text, ids, what):
            warn(problem)
        return ids

    def _batches(self, requests: Sequence[Request], indices: Sequence[int]) -> list[list[int]]:
        """Divide rows of similar lengths into batches; the batch of the first row comes first.

        Args:
            requests: what is decoded.
            indices: what to call the requests in the batches, ascending.
        """
        lengths = list(map(self.length, requests))
        order = sorted(range(len(indices)), key=lengths.__getitem__, reverse=True)
        batches = []
        while order:
            width = lengths[order[0]] * self.rows
            count = recurring(max(1, self.batch_tokens // width))
            batches.append([indices[index] for index in order[:count]])
            order = order[count:]
        return sorted(batches, key=min)


@dataclass(frozen=True)
class TextPredictor(Streaming):
    """Predicts texts from what a model reads."""

    source: Vocabulary
    """Vocabulary of the text that the models read; that of the answers without one."""
    target: Vocabulary
    """Vocabulary of the answers."""
    text: str | None
    """Key of a row's source; None if the models read no text."""

    @classmethod
    def of(
        cls,
        context: Context,
        inputs: Sources,
        search: BeamSearch | Sampling,
        **fields: Any,
    ) -> Self:
        """Return the predictor of a context.

        Args:
            context: models and columns.
            inputs: what fills the inputs of the models.
            search: how outputs are written.
            **fields: further fields by name.

        Raises:
            InputError: the source or the answers have no vocabulary.
        """
        target = context.vocabulary(context.answers)
        source = target if inputs.source is None else context.vocabulary(inputs.source)
        words, ends = VocabularyPrompts(target), (target.eos,)
        return cls(context, inputs, search, words, ends, source, target, inputs.source, **fields)

    def row_of(self, row: Row) -> Row:
        """Return a row of which the column of the source has its text."""
        column = self.inputs.source
        return row if None in (column, self.text) else {**row, str(column): row[str(self.text)]}

    @property
    def longest_source(self) -> int:
        """Maximum tokens of a source, without the end token; longer ones are truncated."""
        models = self.context.models
        positions = positions_of(*models)
        longest = longest_source(LONGEST_SOURCE, positions)
        for fitting in map(fitting_of, models if positions is not None else ()):
            while longest > 1 and fitting.length("source", longest + 1) > (positions or 0):
                longest -= 1
        return longest

    def length(self, request: Request) -> int:
        """Return the tokens of a source, with the end token."""
        return max(len(request.source), request.other_length) + 1

    def requests(self, rows: Sequence[Row], start: int, warn: Warn) -> list[Request]:
        """Return what is decoded for each row; sources are truncated to what models can read."""
        texts = [self._text(row, self.text, start + index) for index, row in enumerate(rows)]
        sources = self._read(texts, start, warn)
        requests = []
        for index, (row, ids) in enumerate(zip(rows, sources, strict=True), start):
            tell = partial(warn, index + 1)
            begin = self._written(self._text(row, self.prefix, index), "the prefix", tell)
            others, length = self.inputs.encoded(row, index)
            if not self.inputs.feeding.columns:  # the models read only what they write
                length = max(1, len(begin))
            request = Request(
                ids,
                begin,
                self._phrases(row, index, tell),
                location=f"{self.what} {index + 1}",
                others=others,
                other_length=length,
            )
            requests.append(request)
            for phrase in self._permitted(request):
                tell(f"'avoid' bans '{phrase}', but the required text has it, and wins")
        return requests

    def _read(self, texts: Sequence[str], start: int, warn: Warn) -> list[list[int]]:
        """Return the ids of sources, which are truncated to what the models can read."""
        longest, sources = self.longest_source, self.source.encode_many(texts)
        for number, (text, ids) in enumerate(zip(texts, sources, strict=True), start + 1):
            if len(ids) > longest:
                warn(number, f"{len(ids)} tokens, truncated to {longest}")
            if problem := lacking(self.source, text, ids, "the source"):
                warn(number, problem)
        return [ids[:longest] for ids in sources]

    def _permitted(self, request: Request) -> list[str]:
        """Return the phrases to avoid that the required text of a request contains."""
        required = [request.begin, *request.include]
        return self.avoidance.required(required) if self.avoidance and any(required) else []

    def decode_requests(
        self, requests: Sequence[Request], cancelled: Cancelled | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of a batch, best first; sources have no end tokens yet."""
        return decode_ids(
            self.context.models,
            [replace(request, source=[*request.source, self.source.eos]) for request in requests],
            SpecialTokens.of(self.target),
            self.search,
            avoidance=self.avoidance,
            inputs=self.inputs,
            text_of=self.target.decode,
            half=self.context.half,
            cancelled=cancelled,
        )


def _phrases_in(key: str, value: Any) -> list[str]:
    """Return the phrases in a value of a row: a list, or a text separated by tabs."""
    phrases = value if isinstance(value, list | tuple) else text_of(value, key).split("\t")
    return [text for phrase in phrases if (text := text_of(phrase, key)).strip()]


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
    """Return the places in a batch of the rows that are cancelled.

    Args:
        rows: indices of the rows in the buffer.
        start: number of rows before the buffer.
        cancelled: returns the cancelled rows.
    """
    dropped = set(cancelled())
    return [index for index, row in enumerate(rows) if start + row in dropped] if dropped else []
