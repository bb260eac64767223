"""The commands `weft translate`, `weft score` and `weft generate`, which work line by line."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from pydantic import Field

from ...specs.findings import InputError
from ..data.text_files import STDIN, read_lines
from ..decode.settings import GenerateSettings
from ..system.arriving import take
from .common import terminal
from .common.command import DECODING, FieldsOf, command, wrong
from .common.models import (
    OF_THE_RUN,
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
from .common.reading import (
    Mistakes,
    answers_of,
    as_it_arrives,
    decoded_lines,
    prompts,
    text_lines,
)

if TYPE_CHECKING:
    from ..data.hub import Prompts
    from ..decode.settings import Hypothesis
    from ..decode.translate import TranslationRequest, Translator
    from ..model.model import Model

_Prompt = tuple[int, tuple[str, InputError | None], list[str]]
"""Number and text of a line, why it is not text, and the phrases that its continuation contains."""
_LINE_ENDS = str.maketrans("\n\r", "  ")
"""Replaces line ends inside an output; a model may generate them as bytes."""

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
    note="An n-best list has one output per line: number of the input line, score and text, "
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
    from ..decode.translate import BUFFER, FIRST_LINES

    model = open_checkpoints(
        checkpoint,
        options_of(search, sampled, sample=sample),
        placement,
    )
    ahead, translator = buffer or BUFFER, model.translator
    pending: deque[TranslationRequest] = deque()
    mistakes = Mistakes()
    requests = _requests(text_lines(source, mistakes), prefix, include, pending, mistakes)
    counter = counter_for("lines translated", source, out, asked=progress)
    with terminal.writing(out) as file:
        try:
            hypotheses = translator.hypotheses(
                as_it_arrives(requests, source, ahead),
                buffer=ahead,
                first=FIRST_LINES,
                warn=terminal.warn,
                callback=counter.more if counter is not None else None,
            )
            for number, candidates in enumerate(hypotheses, 1):
                request = pending.popleft()
                if json_ or alignment or attention:
                    record = _record_of(model, request, candidates, alignment, attention)
                    record = {"line": number, **record, **mistakes.record(number)}
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                else:
                    _write_plain(file, translator, candidates, number)
                file.flush()
        finally:
            if counter is not None:
                counter.close()
    return mistakes.exit_code()


def counter_for(
    what: str, source: str | None, out: str | None, *, asked: bool
) -> terminal.Counter | None:
    """Return a counter if the user asked for it, or if it disturbs neither output nor prompt.

    Args:
        what: what is counted, such as `lines translated`.
        source: the input file, if there is one.
        out: the output file, if there is one.
        asked: whether the user asked for progress.
    """
    free = (out is not None or not sys.stdout.isatty()) and not prompts(source)
    return terminal.Counter(what) if asked or (terminal.shows_progress() and free) else None


def _record_of(
    model: Model,
    request: TranslationRequest,
    candidates: list[Hypothesis],
    alignment: bool,  # noqa: FBT001 - private
    attention: bool,  # noqa: FBT001 - private
) -> dict[str, Any]:
    from ..model.records import Details, text_records

    details = Details(alignment=alignment, attention=attention)
    [record] = text_records(model, [request.text], [candidates], details)
    return record


def _write_plain(
    out: TextIO, translator: Translator, candidates: list[Hypothesis], number: int
) -> None:
    """Write the best output as one line, or the line's number, score and text of each."""
    several = translator.search.nbest > 1
    if not candidates:
        out.write(f"{number}\t\t\n" if several else "\n")
        return
    for hypothesis in candidates if several else candidates[:1]:
        text = translator.target.decode(hypothesis.tokens).translate(_LINE_ENDS)
        out.write(f"{number}\t{hypothesis.score:.4f}\t{text}\n" if several else f"{text}\n")


def _requests(
    lines: Iterable[str],
    prefix: str | None,
    include: str | None,
    pending: deque[TranslationRequest],
    mistakes: Mistakes,
) -> Iterator[TranslationRequest]:
    """Yield each line with the prefix and the phrases required of its translation.

    Args:
        lines: the lines.
        prefix: file of prefixes, line by line.
        include: file of phrases, line by line.
        pending: a list to which each request is appended before it is yielded.
        mistakes: gets the lines of these files that are not text; their lines become empty.
    """
    from ..decode.translate import TranslationRequest

    begins = None if prefix is None else decoded_lines(prefix)
    holds = None if include is None else decoded_lines(include)
    for number, line in enumerate(lines, 1):
        begin, *errors = ("", None) if begins is None else _next(begins, str(prefix), number)
        hold, error = ("", None) if holds is None else _next(holds, str(include), number)
        wrong = [mistake for mistake in (*errors, error) if mistake is not None]
        for mistake in wrong:
            mistakes.add(number, mistake)
        phrases = [phrase for phrase in hold.split("\t") if phrase.strip()]
        pending.append(TranslationRequest("" if wrong else line, begin, phrases))
        yield pending[-1]


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
    settings: Annotated[dict[str, Any], FieldsOf(GenerateSettings, panel="Generation")],
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
    from ..checkpoint.tokenizers import prompts_of
    from ..decode.generate import check_generates

    model = open_checkpoints(checkpoint, None, placement)
    check_generates(model.graph)
    tokenizer = None if ids else prompts_of(model.checkpoint)
    if include is not None and tokenizer is None:
        raise wrong("--include", "phrases are text, but --ids reads token ids")
    settings = widened(settings)
    chosen = model.generation(settings)
    sampled = chosen.temperature > 0
    numbered = (chosen.samples if sampled else chosen.nbest) > 1
    mistakes = Mistakes()
    arriving = as_it_arrives(_prompts(source, include), source, batch)

    def answer(rows: Sequence[_Prompt]) -> list[list[Hypothesis]]:
        prompts = [_ids(tokenizer, line, error) for _, (line, error), _ in rows]
        required = []
        if tokenizer is not None:
            required = [[tokenizer.encode(phrase) for phrase in row[2]] for row in rows]
        return model.generate(prompts, include=required, tokenizer=tokenizer, **settings)

    def refuse(index: int, error: InputError) -> None:
        number = rows[index][0]
        where = f"{source if source not in (None, '-') else STDIN}:{number}"
        mistakes.add(number, InputError(error.problem, location=where, help=error.help))

    with terminal.writing(out) as file:
        while rows := take(arriving, batch):
            answers = answers_of(answer, rows, refuse)
            for (number, (line, _), _), mine in zip(rows, answers, strict=True):
                if tokenizer is not None and mine is not None:
                    _warn_of_unknown(tokenizer, number, line)
                if json_:
                    records = [
                        _continuation(tokenizer, continuation) for continuation in mine or ()
                    ]
                    record = {"line": number, "prompt": line, "continuations": records}
                    record |= mistakes.record(number)
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                    continue
                if mine is None:
                    file.write(f"{number}\t\t\n" if numbered else "\n")
                for continuation in mine or ():
                    text = _written(tokenizer, continuation).translate(_LINE_ENDS)
                    score_ = continuation.log_probability if sampled else continuation.score
                    file.write(f"{number}\t{score_:.4f}\t{text}\n" if numbered else f"{text}\n")
            file.flush()
    return mistakes.exit_code()


def _prompts(source: str | None, include: str | None) -> Iterator[_Prompt]:
    """Yield the prompts of a file with the phrases of another."""
    required = None if include is None else decoded_lines(include)
    for number, (line, error) in enumerate(decoded_lines(source), 1):
        text, wrong_ = ("", None) if required is None else _next(required, str(include), number)
        phrases = [phrase for phrase in text.split("\t") if phrase.strip()]
        yield number, (line, error or wrong_), phrases


def _ids(tokenizer: Prompts | None, line: str, error: InputError | None) -> list[int]:
    """Return the ids of a prompt.

    Args:
        tokenizer: the tokenizer; None if lines consist of ids.
        line: the line.
        error: why it is not text.

    Raises:
        InputError: the line is not text or, for ids, has something else, or the prompt is empty.
    """
    if error is not None:
        raise error
    if tokenizer is not None:
        token_ids = tokenizer.prompt(line)
    else:
        try:
            token_ids = [int(word) for word in line.split()]
        except ValueError:
            raise InputError(
                "not a line of token ids",
                help="write whole numbers separated by spaces",
            ) from None
    if not token_ids:
        raise InputError("the prompt is empty", help="remove the line")
    return token_ids


def _warn_of_unknown(tokenizer: Prompts, number: int, line: str) -> None:
    """Warn of characters of a prompt that the tokenizer lacks."""
    if problem := tokenizer.lacking(line, tokenizer.prompt(line)):
        terminal.warn(number, problem)


def _written(tokenizer: Prompts | None, continuation: Hypothesis) -> str:
    if tokenizer is None:
        return " ".join(map(str, continuation.tokens))
    return tokenizer.decode(continuation.tokens)


def _continuation(tokenizer: Prompts | None, continuation: Hypothesis) -> dict[str, Any]:
    record = {
        "log_probability": continuation.log_probability,
        "score": continuation.score,
        "finished": continuation.finished,
        "ids": continuation.tokens,
    }
    if tokenizer is None:
        return record
    return {
        "text": tokenizer.decode(continuation.tokens),
        "tokens": tokenizer.pieces(continuation.tokens),
        **record,
    }
