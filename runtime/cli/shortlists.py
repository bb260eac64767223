"""The command `weft shortlist`, which makes and measures lexical shortlists."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from ...specs.findings import InputError
from ..checkpoint.manifest import weights_digest
from ..metrics.text import Bleu
from .common import terminal
from .common.command import DECODING, command, wrong
from .common.models import OF_THE_RUN, PlaceOfOne, Search, open_checkpoints
from .common.parameters import Checkpoint, Json, file_option, out_option
from .decoding import two_sides

if TYPE_CHECKING:
    from ..decode.shortlist.table import Shortlist
    from ..model.model import Model

_VALIDATION = "Validation data"
_SIZES = "Sizes"
Lines = tuple[Sequence[str], Sequence[str]]
"""Source lines and target lines."""


@command(
    DECODING,
    "weft shortlist outputs/demo/averaged -o demo.shortlist",
    "weft shortlist outputs/demo/averaged --lex lex.s2t --each 100 -o demo.shortlist",
    "weft translate outputs/demo/averaged --shortlist demo.shortlist < in.txt",
    note="The file is refused by `--shortlist` with another checkpoint. " + OF_THE_RUN,
)
def shortlist(
    checkpoint: Checkpoint,
    *,
    out: Annotated[str, out_option("File to write.")],
    source: Annotated[
        str | None,
        file_option("--source", "Lines to count in. [default: training data of the run]"),
    ] = None,
    target: Annotated[
        str | None, file_option("--target", "Their translations, line by line.")
    ] = None,
    table: Annotated[
        str | None,
        file_option(
            "--table",
            "Read candidates, not align: 'source-piece target-piece probability' per line.",
        ),
    ] = None,
    lex: Annotated[
        str | None,
        file_option(
            "--lex", "The same as Marian's lex.s2t: 'target-piece source-piece probability'."
        ),
    ] = None,
    valid_source: Annotated[
        str | None,
        file_option(
            "--valid-source",
            "Lines to measure BLEU on. [default: validation data of the run]",
            _VALIDATION,
        ),
    ] = None,
    valid_target: Annotated[
        str | None,
        file_option("--valid-target", "Their reference translations, line by line.", _VALIDATION),
    ] = None,
    data_root: Annotated[
        str | None,
        file_option("--data-root", "Folder with the run's data. [default: data.root of the run]"),
    ] = None,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked",
            help="Write the file without measuring BLEU. It may then translate badly.",
            rich_help_panel=_VALIDATION,
        ),
    ] = False,
    frequent: Annotated[
        int,
        Field(ge=0, le=1_000_000),
        typer.Option(
            "--frequent",
            help="Number of most frequent target tokens that every output may contain.",
            rich_help_panel=_SIZES,
        ),
    ] = 1000,
    per_token: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        typer.Option(
            "--each", help="Number of candidates of each source token.", rich_help_panel=_SIZES
        ),
    ] = 50,
    pairs: Annotated[
        int,
        Field(ge=1),
        typer.Option(
            "--pairs",
            help="Number of pairs of lines to count in, from the first.",
            rich_help_panel=_SIZES,
        ),
    ] = 100_000,
    json_: Json = False,
    search: Search,
    placement: PlaceOfOne,
) -> None:
    """Write a lexical shortlist: the tokens by which each source token is likely to be translated.

    Candidates are counted in the alignments of the model's own attention, or read from a table.
    The file is not written if BLEU on validation data is worse by more than 0.1 with the shortlist.

    Raises:
        InputError: the model cannot have a shortlist, a file cannot be read, or the shortlist loses
            more than 0.1 BLEU.
    """
    from ..compile.decoder import refuse_shortlist

    _refuse_options((source, target), (valid_source, valid_target), (table, lex), unchecked)
    model = open_checkpoints(checkpoint, search, placement)
    refuse_shortlist(model.module)
    model.line_predictor()  # an error if it does not translate
    measuring = (
        None if unchecked else _lines(model, (valid_source, valid_target), "valid", data_root)
    )
    if measuring is not None and not any(measuring[0]):
        raise InputError("there are no lines to measure BLEU on", help="give --valid-source")
    counting = _lines(model, (source, target), "train", data_root)
    built_shortlist = _made(
        model, counting, (table, lex), {"frequent": frequent, "per_token": per_token}, pairs
    )
    if measuring is None:
        built_shortlist = _unchecked(built_shortlist)
    else:
        terminal.notice(f"translating {len(measuring[0]):,} lines twice to measure BLEU")
        built_shortlist = measured(model, built_shortlist, *measuring)
        _refuse_worse(built_shortlist, out, frequent, per_token)
    built_shortlist.write(Path(out))
    print(
        json.dumps(built_shortlist.about.model_dump(mode="json"), indent=2)
        if json_
        else _report(built_shortlist, out)
    )


def _refuse_options(
    texts: tuple[str | None, str | None],
    valid: tuple[str | None, str | None],
    tables: tuple[str | None, str | None],
    unchecked: bool,  # noqa: FBT001 - private
) -> None:
    """Refuse options that miss another one, or contradict it."""
    for flag, (source_path, other) in (("--source", texts), ("--valid-source", valid)):
        if bool(source_path) != bool(other):
            raise wrong(flag, f"a text needs both {flag} and {flag.replace('source', 'target')}")
    if all(tables):
        raise wrong("--lex", "it cannot be combined with --table")
    if unchecked and any(valid):
        raise wrong("--unchecked", "it measures nothing: leave out --valid-source")


def _lines(
    model: Model, files: tuple[str | None, str | None], name: str, root: str | None
) -> Lines:
    """Return the lines of two files, or of a data set of the run.

    Raises:
        InputError: a file cannot be read, or the checkpoint has no run and no files are given.
    """
    if files[0] is not None and files[1] is not None:
        return two_sides(files[0], files[1])
    if model.trained is None:
        prefix = "valid-" if name == "valid" else ""
        raise InputError(
            "the checkpoint names no data",
            location=str(model.checkpoint.folder),
            help=f"give --{prefix}source and --{prefix}target",
        )
    rows = model.answering.rows(name, root)
    source, target = model.answering.sides()
    return [str(row[source]) for row in rows], [str(row[target]) for row in rows]


def _made(
    model: Model,
    counting: Lines,
    tables: tuple[str | None, str | None],
    sizes: dict[str, int],
    most: int,
) -> Shortlist:
    """Return the shortlist, not measured yet."""
    from ..analysis.alignment import count_aligned
    from ..decode.shortlist.making import make_shortlist, read_table

    predictor = model.line_predictor()
    tokenizers = predictor.source, predictor.target
    sources, targets = (lines[:most] for lines in counting)
    written = tokenizers[1].encode_many(targets)
    frequencies = Counter(token for ids in written for token in ids)
    origin: dict[str, Any] = {"pairs": len(sources)}
    weights: Any
    if any(tables):
        table, lex = tables
        weights = read_table(str(table or lex), tokenizers, "source" if table else "target")
        origin["from"] = "table"
    else:
        read = tokenizers[0].encode_many(sources)
        counter = terminal.LineCounter("pairs aligned")
        pairs = zip(read, written, strict=True)
        weights = count_aligned(model.module, model.graph, tokenizers, pairs, counter.more)
        counter.close()
        origin["from"] = "alignment"
    if not weights or not frequencies:
        raise InputError("there are no lines to count in", help="give --source and --target")
    return make_shortlist(weights, frequencies, tokenizers, origin=origin, **sizes)


def _unchecked(shortlist: Shortlist) -> Shortlist:
    """Return a shortlist that says that it was not measured on purpose."""
    return replace(shortlist, about=shortlist.about.model_copy(update={"unchecked": True}))


def _refuse_worse(shortlist: Shortlist, out: str, frequent: int, per_token: int) -> None:
    """Refuse to write a shortlist that translates worse than `WORST` allows.

    Raises:
        InputError: it does.
    """
    from ..decode.shortlist.table import WORST

    measurement = shortlist.about.measured
    if measurement is not None and not measurement.passes:
        raise InputError(
            f"nothing was written: BLEU is {measurement.bleu_shortlist:.2f} with the shortlist and"
            f" {measurement.bleu:.2f} without it, worse by more than {WORST}",
            location=out,
            help=f"raise --each (now {per_token}), --frequent (now {frequent}) or the number of"
            " pairs that are counted",
        )


def _report(shortlist: Shortlist, out: str) -> str:
    """Return the result as text."""
    measurement, size = shortlist.about.measured, len(shortlist.candidates)
    lines = [f"{out}: {size:,} candidates, {len(shortlist.frequent):,} frequent tokens"]
    if measurement is None:
        lines.append("  BLEU was not measured")
    else:
        lines.append(
            f"  BLEU {measurement.bleu_shortlist:.2f} with the shortlist, {measurement.bleu:.2f}"
            f" without; {measurement.lines:,} lines,"
            f" {measurement.tokens:,.0f} tokens each on average"
        )
    return "\n".join(lines)


_ROWS = 64


def measured(
    model: Model, shortlist: Shortlist, sources: Sequence[str], references: Sequence[str]
) -> Shortlist:
    """Return a shortlist with BLEU of a model's translations, with the shortlist and without.

    BLEU is that of the metrics of the model's run, if there is one; search, precision and other
    passes are those of the model, which decodes as before afterwards.

    Args:
        model: the model, on the CPU and without other models of an ensemble.
        shortlist: a shortlist for its tokenizers.
        sources: lines of validation data, at least one.
        references: their translations.

    Raises:
        InputError: the model cannot decode with a shortlist.
    """
    from ..compile.decoder import passes_of, use_passes
    from ..decode.shortlist.table import Measurement

    metric = _bleu(model)
    before = passes_of(model.module)
    scores = []
    try:
        for chosen in (None, shortlist):
            use_passes(model.module, replace(before, shortlist=chosen))
            scores.append(metric.measure(model.translate(sources), references).value)
    finally:
        use_passes(model.module, before)
    measurement = Measurement(
        lines=len(sources),
        bleu=scores[0],
        bleu_shortlist=scores[1],
        tokens=_mean_tokens(model, shortlist, sources),
        weights=weights_digest(model.checkpoint.folder),
        settings={
            "search": model.search.model_dump(mode="json"),
            "precision": "bfloat16" if model.half else "float32",
            "quantize": before.quantize,
        },
    )
    about = shortlist.about.model_copy(update={"measured": measurement, "unchecked": False})
    return replace(shortlist, about=about)


def _bleu(model: Model) -> Any:
    """Return BLEU as the run of a model measures it, or with the usual tokenization."""
    metrics = [] if model.trained is None else model.answering.run.metrics()
    return next((metric for metric in metrics if isinstance(metric, Bleu)), Bleu())


def _mean_tokens(model: Model, shortlist: Shortlist, sources: Sequence[str]) -> float:
    """Return the mean number of tokens in the lists of lines, without special tokens."""
    reader = model.line_predictor()
    rows, total = reader.source.encode_many(sources), 0
    for start in range(0, len(rows), _ROWS):
        total += int(shortlist.allowed(rows[start : start + _ROWS], reader.target.vocab_size).sum())
    return round(total / len(rows), 1)
