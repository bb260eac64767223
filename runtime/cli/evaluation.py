"""The commands `weft evaluate` and `weft attend`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from ...specs.findings import InputError
from .common.command import DECODING, command, wrong
from .common.models import (
    OF_THE_RUN,
    Place,
    PlaceUncompiled,
    Sample,
    Sampled,
    Search,
    SearchMeasured,
    open_checkpoints,
    options_of,
)
from .common.parameters import (
    Checkpoint,
    DataRoot,
    Json,
    Metrics,
    Test,
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
    test: Test = None,
    data_root: DataRoot = None,
    source: Annotated[
        str | None, file_option("--source", "Lines to translate, plain text or compressed.")
    ] = None,
    target: Annotated[
        str | None, file_option("--target", "Their reference translations, line by line.")
    ] = None,
    metrics: Metrics = None,
    out: Annotated[str | None, out_option("Also write the answers to this file.")] = None,
    json_: Json = False,
    predictor: Predictor = None,
    overrides: PredictorOverrides = None,
    search: SearchMeasured,
    sample: Sample = False,
    sampled: Sampled,
    placement: Place,
) -> None:
    """Print the metrics of a checkpoint's run on its test sets.

    Of an imported translation model, print BLEU, chrF and perplexity.

    Raises:
        InputError: the checkpoint or a file cannot be read, or an option does not apply to the
            model.
    """
    if bool(source) != bool(target):
        raise wrong("--source", "a text needs both --source and --target")
    options = options_of(search, sampled, sample=sample)
    model = with_predictor(
        open_checkpoints(checkpoint, None, placement), predictor, overrides, options
    )
    tests = test_rows(model, (source, target) if source and target else None, test, data_root)
    one_file(out, tests)
    chosen = chosen_metrics(model, metrics or ())
    reports = [
        evaluated(model, name, rows, chosen, out, shown=not json_) for name, rows in tests.items()
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
