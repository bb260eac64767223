"""The commands `weft translate`, `weft score` and `weft attend`."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ....specs.findings import InputError
from ...decode.translate import TranslationRequest
from ..opened import opened, two_sides, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...decode.settings import Hypothesis
    from ...model.model import Model
    from ..progress import Counter

_LINE_ENDS = str.maketrans("\n\r", "  ")
"""Replaces line ends inside an output; a model may generate them as bytes."""
_EMPTY = "its translation is an empty line"


def translate(options: Namespace) -> None:
    """Translate stdin to stdout, line by line.

    Raises:
        InputError: a checkpoint cannot be opened, a prefix or include file has too few lines,
            or the model provides no alignment or attention.
    """
    model = opened(options)
    interactive = options.interactive
    buffer = 1 if interactive else max(1, options.buffer)
    as_json = options.json or options.alignment or options.attention
    lines = _prompted() if interactive else utf8_lines(sys.stdin.buffer, _EMPTY)
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    shows = options.progress or (
        sys.stderr.isatty() and not interactive and not sys.stdout.isatty()
    )
    counter = _counter() if shows else None
    try:
        # `tee` buffers at most the lines that are read ahead.
        read, kept = tee(_requests(lines, options.prefix, options.include))
        hypotheses = model.translator.hypotheses(
            read, buffer=buffer, warn=warn, callback=counter.more if counter is not None else None
        )
        for number, (found, request) in enumerate(zip(hypotheses, kept, strict=True), 1):
            if as_json:
                [record] = _records(options, model, request, found)
                out.write(json.dumps({"line": number, **record}, ensure_ascii=False) + "\n")
            else:
                _write_plain(out, model, found, scores=model.translator.search.nbest > 1)
            if buffer == 1:
                out.flush()
        out.flush()
    finally:
        if counter is not None:
            counter.close()
        out.detach()


def _counter() -> Counter:
    from ..progress import Counter

    return Counter("lines translated")


def _records(
    options: Namespace, model: Model, request: TranslationRequest, found: list[Hypothesis]
) -> list[dict[str, Any]]:
    from ...model.records import Details, text_records

    details = Details(alignment=options.alignment, attention=options.attention)
    return text_records(model, [request.text], [found], details)


def _write_plain(
    out: io.TextIOWrapper, model: Model, found: list[Hypothesis], *, scores: bool
) -> None:
    """Write the best output as one line, or with `scores` a line of score and text for each."""
    if not found:
        out.write("\n")
        return
    for one in found if scores else found[:1]:
        text = model.translator.target.decode(one.tokens).translate(_LINE_ENDS)
        out.write(f"{one.score:.4f}\t{text}\n" if scores else f"{text}\n")


def utf8_lines(stream: BinaryIO, instead: str) -> Iterator[str]:
    """Yield the lines of a byte stream; a line that is not UTF-8 becomes an empty line.

    Args:
        stream: bytes.
        instead: what happens to such a line, for the warning.
    """
    for number, raw in enumerate(stream, 1):
        try:
            yield raw.rstrip(b"\n").decode("utf-8")
        except UnicodeDecodeError:
            warn(number, f"not UTF-8, so {instead}")
            yield ""


def _prompted() -> Iterator[str]:
    """Prompt for lines on stderr and yield them until the end of input."""
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line.rstrip("\n")


def _requests(
    lines: Iterable[str], prefix: str | None, include: str | None
) -> Iterator[TranslationRequest]:
    """Yield each line with the prefix and the phrases required of its translation."""
    from ...data.text_files import read_lines

    begins = None if prefix is None else read_lines(prefix)
    holds = None if include is None else read_lines(include)
    for number, line in enumerate(lines, 1):
        begin = "" if begins is None else _next(begins, str(prefix), number)
        hold = "" if holds is None else _next(holds, str(include), number)
        yield TranslationRequest(line, begin, [one for one in hold.split("\t") if one.strip()])


def _next(lines: Iterator[str], place: str, number: int) -> str:
    for line in lines:
        return line
    raise InputError(
        f"there is no line {number}",
        place=place,
        help="write one line for each line to translate; leave it empty for no constraint",
    )


def score(options: Namespace) -> None:
    """Print the log probability of given translations.

    Raises:
        InputError: a file cannot be read, or one has more lines than the other.
    """
    model = opened(options)
    sources, targets = two_sides(options.source, options.target)
    total = tokens = 0.0
    for number, found in enumerate(model.score(zip(sources, targets, strict=True)), 1):
        total, tokens = total + found.log_probability, tokens + len(found.tokens)
        if options.json:
            record = {
                "line": number,
                "score": found.score,
                "log_probability": found.log_probability,
                "tokens": found.tokens,
                "log_probabilities": found.log_probabilities,
            }
            print(json.dumps(record, ensure_ascii=False))
        else:
            print(f"{found.score:.4f}\t{found.log_probability:.4f}\t{len(found.tokens)}")
    if tokens:
        print(
            f"{len(sources):,} pairs, {-total / tokens:.4f} nats per token, end tokens included",
            file=sys.stderr,
        )


def attend(options: Namespace) -> None:
    """Write each head's attention weights for a sentence and its translation, as HTML or PNG.

    Raises:
        InputError: the sentence is empty or too long, or the file cannot be written.
    """
    from ....graphs.draw.render import check_suffix
    from ...analysis.attention_page import SUFFIXES, groups_of, write_attention

    out = Path(options.out)
    check_suffix(out, SUFFIXES)
    model = opened(options)
    target = options.target if options.target is not None else model.translate([options.text])[0]
    [maps] = model.attention([options.text], [target])
    groups = groups_of(model.graph, maps)
    if options.only is not None:
        chosen = [group for group in groups if group.title == options.only]
        if not chosen:
            raise InputError(
                f"no attention is called '{options.only}'",
                place="--only",
                help=f"choose among: {', '.join(group.title for group in groups)}",
            )
        groups = chosen
    print(write_attention(groups, out, f"{options.text} -> {target}"))
