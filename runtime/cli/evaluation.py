"""The commands `weft evaluate` and `weft attend`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from ...specs.findings import InputError
from .common.answering import Answered, InputRow
from .common.chunks import ROWS, LineWork, Outputs, answered_apart, works_apart
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
    On,
    Processes,
    Test,
    argument,
    file_option,
    option,
    out_option,
)
from .common.reading import Mistakes
from .measuring import answers_of, chosen_metrics, evaluated
from .predicting import Overrides as PredictorOverrides
from .predicting import (
    Predictor,
    one_file,
    test_rows,
    with_predictor,
)

if TYPE_CHECKING:
    from ..model.model import Model


@command(
    DECODING,
    "weft evaluate outputs/multi30k-en-de/averaged --test test_2016_flickr --beam 5",
    "weft evaluate outputs/multi30k-en-de/averaged --metric ter --metric exact_match",
    "weft evaluate outputs/multi30k-en-de/averaged --processes 2",
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
    processes: Processes = None,
    on: On = "local",
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
    work = Evaluating(checkpoint, placement, None, predictor, tuple(overrides or ()), options)
    model = work.model()
    tests = test_rows(model, (source, target) if source and target else None, test, data_root)
    one_file(out, tests)
    chosen = chosen_metrics(model, metrics or ())
    answered = None
    if works_apart(on, processes):
        answered = partial(_answered, work, out, on, processes)
    reports = [
        evaluated(model, name, rows, chosen, out, shown=not json_, answered=answered)
        for name, rows in tests.items()
    ]
    if json_:
        print(json.dumps(reports, indent=2))


@dataclass(frozen=True, slots=True)
class Evaluating(LineWork):
    """The settings of `weft evaluate`."""

    predictor: str | None
    overrides: tuple[str, ...]
    options: dict[str, Any]

    def model(self) -> Model:
        """Open the model, with the predictor that the user gave.

        Raises:
            InputError: it cannot be opened, or an option does not fit it.
        """
        model = open_checkpoints(self.checkpoint, None, self.placement)
        return with_predictor(model, self.predictor, [*self.overrides], self.options)

    def open(self) -> Outputs:
        """Open the model, and return what answers rows, each with a line of JSON."""
        from ..train.distributed.answers import encoded

        model = self.model()

        def outputs(rows: Iterable[InputRow], mistakes: Mistakes) -> Iterator[str]:
            asked = Answered[Any](rows, None, ROWS, mistakes)
            parts = asked.batches(lambda values: answers_of(model, values, warn=asked.warn))
            for _, answer in chain.from_iterable(parts):
                yield json.dumps(encoded(answer)) + "\n"

        return outputs


class _Refused(Mistakes):
    """Raises what is wrong with a row: metrics of the others would be those of another test set."""

    def tell(self, number: int, error: InputError) -> None:
        """Raise what is wrong with a row."""
        del number
        raise error


def _answered(
    work: Evaluating,
    out: str | None,
    on: On,
    processes: int | None,
    rows: list[dict[str, Any]],
    progress: Callable[[int], None],
) -> list[Any]:
    """Return the answers to rows on an executor; finished parts are kept if there is a file."""
    from ..train.distributed.answers import decoded

    numbered = (
        InputRow(number, f"row {number}", f"row {number}", "", partial(dict, row))
        for number, row in enumerate(rows, 1)
    )
    with ExitStack() as stack:
        beside = out or str(Path(stack.enter_context(TemporaryDirectory())) / "answers")
        texts_of = stack.enter_context(
            answered_apart(work, numbered, beside, "rows predicted", progress, on, processes)
        )
        lines = "".join(texts_of((), _Refused())).splitlines()
    return [decoded(json.loads(line)) for line in lines]


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
