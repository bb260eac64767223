"""The commands `weft translate`, `weft score` and `weft generate`, which work line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Any

import typer
from pydantic import Field

from ...specs.findings import InputError
from ..data.text_files import STDIN, read_lines
from ..decode.predictors.predictor import Answer
from .common import terminal
from .common.answering import Answered, InputRow, Streamed, lines_of
from .common.chunks import LineWork, Outputs, write_answers
from .common.command import DECODING, FieldsOf, command, wrong
from .common.models import (
    OF_THE_RUN,
    GenerateOptions,
    OfScores,
    Place,
    PlaceOfOne,
    PlaceUncompiled,
    Sample,
    Sampled,
    Search,
    open_checkpoints,
    options_of,
    widened,
)
from .common.parameters import (
    Checkpoint,
    On,
    Processes,
    argument,
    complete_files,
    file_option,
    option,
    out_option,
)
from .common.reading import Mistakes, decoded_lines

Input = Annotated[
    str | None,
    argument(
        "INPUT",
        "File of lines, plain text or compressed. [default: standard input]",
        complete_files,
    ),
]
Output = Annotated[str | None, out_option("File to write. [default: standard output]")]
Buffer = Annotated[
    int | None,
    Field(ge=1),
    option(
        "--buffer",
        "Number of lines to read ahead. Those that have come through a pipe are answered when none "
        "follows for 0.05 s. [default: 1000]",
    ),
]
Progress = Annotated[
    bool,
    typer.Option("--progress", help="Count lines on stderr even if stderr is not a terminal."),
]


@command(
    DECODING,
    "weft translate outputs/demo/averaged in.txt -o out.txt --beam 5",
    "weft translate outputs/demo/averaged --nbest 3 < in.txt",
    "weft translate outputs/demo/averaged in.txt -o out.txt --processes 2",
    note="With --metric, outputs are chosen by minimum Bayes risk among --samples (default 32). An "
    "n-best list has one output per line: number of the input line, score and text, "
    f"separated by tabs. {OF_THE_RUN}",
    memory="give a smaller --buffer, such as 16: a batch has at most so many lines; for single long"
    " lines, give a smaller --beam or --max-length",
)
def translate(
    checkpoint: Checkpoint,
    source: Input = None,
    *,
    out: Output = None,
    search: Search,
    sample: Sample = False,
    sampled: Sampled,
    prefix: Annotated[
        str | None,
        file_option("--prefix", "Text that each translation must begin with, line by line."),
    ] = None,
    include: Annotated[
        str | None,
        file_option(
            "--include",
            "Phrases that each translation must contain, line by line, separated by tabs.",
        ),
    ] = None,
    json_: Annotated[
        bool,
        typer.Option("--json", help="Write one JSON object per line: texts, tokens and scores."),
    ] = False,
    alignment: Annotated[
        bool,
        typer.Option(
            "--alignment", help="Write JSON lines with the aligned source token of each token."
        ),
    ] = False,
    attention: Annotated[
        bool,
        typer.Option(
            "--attention", help="Write JSON lines with the attention weights of every head."
        ),
    ] = False,
    buffer: Buffer = None,
    processes: Processes = None,
    on: On = "local",
    progress: Progress = False,
    placement: Place,
) -> int:
    """Translate a text line by line.

    Raises:
        InputError: a checkpoint cannot be opened, a prefix or include file has too few lines,
            or the model provides no alignment or attention.
    """
    work = Translating(
        checkpoint,
        placement,
        source,
        options_of(search, sampled, sample=sample),
        buffer,
        json_ or alignment or attention,
        alignment,
        attention,
    )
    rows = text_rows(source, "source", {"prefix": prefix, "include": include})
    return write_answers(
        work,
        rows,
        out,
        what="lines translated",
        on=on,
        processes=processes,
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class Translating(LineWork):
    """The settings of `weft translate`."""

    options: dict[str, Any]
    buffer: int | None
    records: bool
    alignment: bool
    attention: bool

    def open(self) -> Outputs:
        """Open the model, and return what translates lines."""
        from ..decode.predictors.text import FIRST_ROWS
        from ..decode.settings import BUFFER
        from ..model.records import Details, text_records

        model = open_checkpoints(self.checkpoint, self.options, self.placement)
        ahead, predictor = self.buffer or BUFFER, model.line_predictor()
        numbered, details = predictor.nbest > 1, Details(self.alignment, self.attention)

        def outputs(rows: Iterable[InputRow], mistakes: Mistakes) -> Iterator[str]:
            asked = Streamed(rows, self.source, ahead, mistakes)
            answered = predictor.stream(
                asked.values(lambda row: row, {"source": "", "prefix": "", "include": ""}),
                buffer=ahead,
                first=None if isinstance(rows, Sequence) else FIRST_ROWS,  # a chunk is at hand
                warn=asked.warn,
            )
            for row, answers in asked.answered(answered):
                if self.records:
                    text = "" if row.number in mistakes else row.text
                    [record] = text_records(model, predictor, [text], [answers], details)
                    record = {"line": row.number, **record, **mistakes.record(row.number)}
                    yield json.dumps(record, ensure_ascii=False) + "\n"
                else:
                    yield lines_of(row.number, answers, numbered=numbered)

        return outputs


def text_rows(
    source: str | None, key: str = "line", required: Mapping[str, str | None] = MappingProxyType({})
) -> Iterator[InputRow]:
    """Yield the lines of a file as rows, with what is required of their answers.

    Args:
        source: the file; None is standard input.
        key: what a row calls the line.
        required: what a row calls the line of each further file, to the file if there is one.
    """
    files = {
        name: (decoded_lines(path), path) for name, path in required.items() if path is not None
    }
    location = STDIN if source in (None, "-") else source
    for number, (line, error) in enumerate(decoded_lines(source), 1):
        problem = error
        values: dict[str, Any] = {key: line, **dict.fromkeys(required, "")}
        for name, (texts, path) in files.items():
            values[name], missing = _next(texts, path, number)
            problem = problem or missing
        yield InputRow(
            number, number, f"{location}:{number}", line, partial(_values, values, problem)
        )


def _next(
    lines: Iterator[tuple[str, InputError | None]], location: str, number: int
) -> tuple[str, InputError | None]:
    for line in lines:
        return line
    raise InputError(
        f"there is no line {number}",
        location=location,
        help="write one line for each line of the input; leave it empty for no constraint",
    )


def _values(values: dict[str, Any], error: InputError | None) -> dict[str, Any]:
    if error is not None:
        raise error
    return values


def two_sides(source: str, target: str) -> tuple[list[str], list[str]]:
    """Return the lines of a text and of its translation.

    Raises:
        InputError: a file cannot be read, or the files differ in length.
    """
    sources, targets = list(read_lines(source)), list(read_lines(target))
    if len(sources) != len(targets):
        raise InputError(
            f"{len(sources)} source lines for {len(targets)} target lines",
            location=f"{source}, {target}",
            help="line n of one file must belong to line n of the other",
        )
    return sources, targets


@command(
    DECODING,
    "weft score outputs/demo/averaged --source in.txt --target out.txt",
    note="Each line has the score, the log probability and the number of tokens, separated by "
    f"tabs. {OF_THE_RUN}",
)
def score(
    checkpoint: Checkpoint,
    *,
    source: Annotated[str, file_option("--source", "Source lines, plain text or compressed.")],
    target: Annotated[str, file_option("--target", "Their translations, line by line.")],
    json_: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per line, with each token's log probability."
        ),
    ] = False,
    search: OfScores,
    placement: PlaceUncompiled,
) -> None:
    """Print the log probability of given translations.

    Raises:
        InputError: a file cannot be read, or one has more lines than the other.
    """
    model = open_checkpoints(checkpoint, search, placement, compiled=False)
    sources, targets = two_sides(source, target)
    total = tokens = 0.0
    scores = model.score(zip(sources, targets, strict=True), warn=terminal.warn)
    for number, scored in enumerate(scores, 1):
        total, tokens = total + scored.log_probability, tokens + len(scored.tokens)
        if json_:
            record = {
                "line": number,
                "score": scored.score,
                "log_probability": scored.log_probability,
                "tokens": scored.tokens,
                "log_probabilities": scored.log_probabilities,
            }
            print(json.dumps(record, ensure_ascii=False))
        else:
            print(f"{scored.score:.4f}\t{scored.log_probability:.4f}\t{len(scored.tokens)}")
    if tokens:
        per_token = -total / tokens
        terminal.notice(
            f"{len(sources):,} pairs, {per_token:.4f} nats per token, end tokens included"
        )


@command(
    DECODING,
    "weft generate outputs/llama --temperature 0.8 --top-p 0.9 < prompts.txt",
    note="With several samples or an n-best list, each line has the number of the prompt, the log "
    "probability (of an n-best list, the score) and the text, separated by tabs.",
    memory="give a smaller --batch, --beam or --max-new",
)
def generate(
    checkpoint: Checkpoint,
    source: Input = None,
    *,
    out: Output = None,
    settings: Annotated[dict[str, Any], FieldsOf(GenerateOptions, panel="Generation")],
    include: Annotated[
        str | None,
        file_option(
            "--include",
            "Phrases that each continuation must contain, line by line, separated by tabs.",
        ),
    ] = None,
    ids: Annotated[
        bool,
        typer.Option("--ids", help="Read and write token ids separated by spaces, not text."),
    ] = False,
    json_: Annotated[
        bool,
        typer.Option(
            "--json", help="Write one JSON object per line: texts, tokens and log probabilities."
        ),
    ] = False,
    batch: Annotated[
        int, Field(ge=1), typer.Option("--batch", help="Number of prompts decoded together.")
    ] = 16,
    processes: Processes = None,
    on: On = "local",
    placement: PlaceOfOne,
) -> int:
    """Continue prompts line by line with a decoder-only model.

    Raises:
        InputError: the checkpoint cannot be opened, cannot generate or has no tokenizer.
    """
    if include is not None and ids:
        raise wrong("--include", "phrases are text, but --ids reads token ids")
    work = Generating(checkpoint, placement, source, widened(settings), ids, json_, batch)
    rows = text_rows(source, "prompt", {"include": include})
    return write_answers(work, rows, out, what="lines continued", on=on, processes=processes)


@dataclass(frozen=True, slots=True)
class Generating(LineWork):
    """The settings of `weft generate`."""

    settings: dict[str, Any]
    ids: bool
    records: bool
    batch: int

    def open(self) -> Outputs:
        """Open the model, and return what continues prompts."""
        from ..model.records import output_record

        model = open_checkpoints(self.checkpoint, None, self.placement)
        predictor = model.prompt_predictor(self.settings, ids=self.ids)
        numbered = predictor.nbest > 1

        def record_of(output: Answer) -> dict[str, Any]:
            tokens = () if output.hypothesis is None else output.hypothesis.tokens
            record = {**output_record(output, predictor.words), "ids": tokens}
            return {k: v for k, v in record.items() if not (self.ids and k in ("text", "tokens"))}

        def outputs(rows: Iterable[InputRow], mistakes: Mistakes) -> Iterator[str]:
            prompts = Answered[list[Answer]](rows, self.source, self.batch, mistakes)

            def answer(values: list[dict[str, Any]]) -> list[list[Answer]]:
                return list(predictor.stream(values, buffer=len(values), warn=prompts.warn))

            for row, answers in chain.from_iterable(prompts.batches(answer)):
                if not self.records:
                    yield lines_of(row.number, answers or (), numbered=numbered)
                    continue
                continuations = [record_of(output) for output in answers or ()]
                record = {"line": row.number, "prompt": row.text, "continuations": continuations}
                record |= mistakes.record(row.number)
                yield json.dumps(record, ensure_ascii=False) + "\n"

        return outputs
