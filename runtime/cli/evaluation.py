"""The commands `weft evaluate` and `weft attend`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...specs.findings import InputError
from .common.command import DECODING, command, wrong
from .common.models import (
    OF_THE_RUN,
    Constrained,
    Place,
    PlaceUncompiled,
    Sample,
    Sampled,
    Search,
    open_checkpoints,
    options_of,
)
from .common.parameters import (
    Checkpoint,
    Json,
    Metrics,
    argument,
    file_option,
    option,
    out_option,
)
from .measuring import chosen_metrics, evaluated
from .predicting import Overrides as PredictorOverrides
from .predicting import (
    Predictor,
    one_file,
    test_rows,
    with_predictor,
)

if TYPE_CHECKING:
    pass

_PARSERS = "Parsers"


@command(
    DECODING,
    "weft evaluate outputs/multi30k-en-de/averaged --test test_2016_flickr --beam 5",
    "weft evaluate outputs/multi30k-en-de/averaged --metric ter --metric exact_match",
    note=OF_THE_RUN,
    memory="give --precision bfloat16, or a smaller --beam or --max-length; batches have at most"
    " 4,096 source tokens times the beam, which cannot be set",
)
def evaluate(
    checkpoint: Checkpoint,
    *,
    test: Annotated[
        str | None,
        option("--test", "One of the run's test sets. [default: all of them]", metavar="NAME"),
    ] = None,
    data_root: Annotated[
        str | None,
        file_option("--data-root", "Folder with the test data. [default: data.root of the run]"),
    ] = None,
    source: Annotated[
        str | None, file_option("--source", "Lines to translate, plain text or compressed.")
    ] = None,
    target: Annotated[
        str | None, file_option("--target", "Their reference translations, line by line.")
    ] = None,
    metrics: Metrics = None,
    out: Annotated[
        str | None, out_option("Also write the translations or parses to this file.")
    ] = None,
    json_: Json = False,
    trees: Annotated[
        str | None,
        file_option("--trees", "Gold trees to use instead of a test set.", _PARSERS),
    ] = None,
    prm: Annotated[
        str | None,
        file_option(
            "--prm", "EVALB parameter file. [default: the settings of COLLINS.prm]", _PARSERS
        ),
    ] = None,
    per_sentence: Annotated[
        bool,
        typer.Option(
            "--each", help="Also print EVALB's row for every sentence.", rich_help_panel=_PARSERS
        ),
    ] = False,
    constrained: Constrained = None,
    predictor: Predictor = None,
    overrides: PredictorOverrides = None,
    search: Search,
    sample: Sample = False,
    sampled: Sampled,
    placement: Place,
) -> None:
    """Print the metrics of a checkpoint's run on its test sets; for a parser, EVALB's report.

    Of an imported translation model, print BLEU, chrF and perplexity.

    Raises:
        InputError: the checkpoint or a file cannot be read, or an option does not apply to the
            model.
    """
    if bool(source) != bool(target):
        raise wrong("--source", "a text needs both --source and --target")
    if per_sentence and json_:
        raise wrong("--each", "it has no effect with --json")
    options = options_of(search, sampled, sample=sample)
    if constrained is not None:
        options["constrained"] = constrained
    model = open_checkpoints(checkpoint, None, placement)
    evaluation = None if model.strategy is None else model.strategy.evaluation()
    model = with_predictor(model, predictor, overrides, options)
    if evaluation is not None:
        if source:
            raise InputError(
                "a parser is measured on trees",
                help="give --trees FILE, or leave out --source and --target",
            )
        if metrics:
            raise wrong("--metric", "a parser is measured by EVALB")
        files = {"trees": trees, "prm": prm, "test": test, "root": data_root, "out": out}
        reports = []
        for figures, text in evaluation(model, per_sentence=per_sentence, **files):
            reports.append(figures)
            if not json_:
                print(text)
    else:
        if trees or prm or per_sentence:
            raise InputError(
                "--trees, --prm and --each are for parsers, and this is not one",
                location=checkpoint,
                help="give --source and --target, or --test",
            )
        pair = (str(source), str(target)) if source else None
        tests = test_rows(model, pair, test, data_root)
        one_file(out, tests)
        chosen = chosen_metrics(model, metrics or ())
        reports = [
            evaluated(model, name, rows, chosen, out, shown=not json_)
            for name, rows in tests.items()
        ]
    if json_:
        print(json.dumps(reports, indent=2))


@command(
    DECODING,
    "weft attend outputs/demo/averaged 'three hundred and seven' -o heads.html",
    note=OF_THE_RUN,
)
def attend(
    checkpoint: Checkpoint,
    text: Annotated[str, argument("TEXT", "A sentence to translate.")],
    *,
    out: Annotated[str, out_option("File to write: .html (interactive), .svg, .pdf or .png.")],
    target: Annotated[
        str | None,
        option(
            "--target",
            "Input of the decoder. [default: the model's own translation]",
            metavar="TEXT",
        ),
    ] = None,
    only: Annotated[
        str | None,
        option(
            "--only",
            "Show one type of attention, such as 'target reads source'. [default: all]",
            metavar="WHAT",
        ),
    ] = None,
    search: Search,
    placement: PlaceUncompiled,
) -> None:
    """Show the attention weights of each head for a sentence and its translation.

    Raises:
        InputError: the sentence is empty or too long, or the file cannot be written.
    """
    from ...graphs.draw.render import check_suffix
    from ..analysis.attention_pictures import SUFFIXES, groups_of, write_attention

    page = Path(out)
    check_suffix(page, SUFFIXES)
    model = open_checkpoints(checkpoint, search, placement, compiled=False)
    target = target if target is not None else model.translate([text])[0]
    [maps] = model.attention([text], [target])
    groups = groups_of(model.graph, maps)
    if only is not None:
        chosen = [group for group in groups if group.title == only]
        if not chosen:
            raise InputError(
                f"no attention is called '{only}'",
                location="--only",
                help=f"choose among: {', '.join(group.title for group in groups)}",
            )
        groups = chosen
    print(write_attention(groups, page, f"{text} -> {target}"))
