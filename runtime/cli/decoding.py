"""The commands `weft translate`, `weft score` and `weft generate`, which work line by line."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any

import typer
from pydantic import Field

from ...specs.findings import InputError
from ..data.text_files import STDIN, read_lines
from ..decode.predictors.predictor import Answer
from .common import terminal
from .common.answering import Answered, Row, counter_for, lines_of
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
    argument,
    complete_files,
    file_option,
    option,
    out_option,
)
from .common.reading import Mistakes, as_it_arrives, decoded_lines, text_lines

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
    progress: Progress = False,
    placement: Place,
) -> int:
    """Translate a text line by line.

    Raises:
        InputError: a checkpoint cannot be opened, a prefix or include file has too few lines,
            or the model provides no alignment or attention.
    """
    from ..decode.predictors.text import FIRST_ROWS
    from ..decode.settings import BUFFER

    model = open_checkpoints(
        checkpoint,
        options_of(search, sampled, sample=sample),
        placement,
    )
    ahead, predictor = buffer or BUFFER, model.line_predictor()
    pending: deque[dict[str, Any]] = deque()
    mistakes = Mistakes()
    rows = _rows(text_lines(source, mistakes), prefix, include, pending, mistakes)
    counter = counter_for("lines translated", source, out, asked=progress)
    numbered = predictor.nbest > 1
    with terminal.writing(out) as file:
        try:
            outputs = predictor.stream(
                as_it_arrives(rows, source, ahead),
                buffer=ahead,
                first=FIRST_ROWS,
                warn=terminal.warn,
                callback=counter.more if counter is not None else None,
            )
            for number, answers in enumerate(outputs, 1):
                text = pending.popleft()["source"]
                if json_ or alignment or attention:
                    from ..model.records import Details, text_records

                    details = Details(alignment=alignment, attention=attention)
                    [record] = text_records(model, predictor, [text], [answers], details)
                    record = {"line": number, **record, **mistakes.record(number)}
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                else:
                    file.write(lines_of(number, answers, numbered=numbered))
                file.flush()
        finally:
            if counter is not None:
                counter.close()
    return mistakes.exit_code()


def _rows(
    lines: Iterable[str],
    prefix: str | None,
    include: str | None,
    pending: deque[dict[str, Any]],
    mistakes: Mistakes,
) -> Iterator[dict[str, Any]]:
    """Yield the row of each line, with the text required of its translation.

    Args:
        lines: the lines.
        prefix: file of prefixes, line by line.
        include: file of phrases, line by line.
        pending: a list to which each row is appended before it is yielded.
        mistakes: gets the lines of these files that are not text; their lines become empty.
    """
    required = {
        name: (decoded_lines(path), path)
        for name, path in (("prefix", prefix), ("include", include))
        if path is not None
    }
    for number, line in enumerate(lines, 1):
        row: dict[str, Any] = {"source": line, "prefix": "", "include": ""}
        for name, (texts, path) in required.items():
            row[name], error = _next(texts, path, number)
            if error is not None:
                mistakes.add(number, error)
                row["source"] = ""
        pending.append(row)
        yield row


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
    placement: PlaceOfOne,
) -> int:
    """Continue prompts line by line with a decoder-only model.

    Raises:
        InputError: the checkpoint cannot be opened, cannot generate or has no tokenizer.
    """
    from ..model.records import output_record

    if include is not None and ids:
        raise wrong("--include", "phrases are text, but --ids reads token ids")
    model = open_checkpoints(checkpoint, None, placement)
    predictor = model.prompt_predictor(widened(settings), ids=ids)
    numbered = predictor.nbest > 1
    prompts = Answered[list[Answer]](_prompts(source, include), source, batch, "lines")

    def answer(rows: list[dict[str, Any]]) -> list[list[Answer]]:
        return list(predictor.stream(rows, buffer=len(rows), warn=prompts.warn))

    def record_of(output: Answer) -> dict[str, Any]:
        tokens = () if output.hypothesis is None else output.hypothesis.tokens
        record = {**output_record(output, predictor.words), "ids": tokens}
        return {k: v for k, v in record.items() if not (ids and k in ("text", "tokens"))}

    with terminal.writing(out) as file:
        for part in prompts.batches(answer):
            for row, answers in part:
                if not json_:
                    file.write(lines_of(row.number, answers or (), numbered=numbered))
                    continue
                outputs = [record_of(output) for output in answers or ()]
                record = {"line": row.number, "prompt": row.text, "continuations": outputs}
                record |= prompts.mistakes.record(row.number)
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
    return prompts.mistakes.exit_code()


def _prompts(source: str | None, include: str | None) -> Iterator[Row]:
    """Yield the prompts of a file with the phrases of another."""
    required = None if include is None else decoded_lines(include)
    name = STDIN if source in (None, "-") else source
    for number, (line, error) in enumerate(decoded_lines(source), 1):
        phrases, missing = ("", None) if required is None else _next(required, str(include), number)
        values = {"prompt": line, "include": phrases}
        yield Row(
            number, number, f"{name}:{number}", line, partial(_values, values, error or missing)
        )


def _values(values: dict[str, Any], error: InputError | None) -> dict[str, Any]:
    if error is not None:
        raise error
    return values
