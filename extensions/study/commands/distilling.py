"""The command `weft distill`: answer the training data of a run with a trained model."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from ....plugin import STUDIES, Overrides, command, option, out_option, overridden
from ....runtime.cli.common import terminal
from ....runtime.cli.common.parameters import Checkpoint, RunName, complete_files


@command(
    STUDIES,
    "weft distill multi30k-en-de outputs/teacher/averaged --out data/multi30k/distilled "
    "--predict beam=5",
    "weft distill multi30k-en-de outputs/1/averaged --ensemble outputs/2/averaged "
    "--out data/multi30k/distilled --predict nbest=5 --closest",
    note="Sequence-level distillation, Kim & Rush 2016. The folder contains the rows as lines, "
    "the teacher's tokenizers, and from what they were made. A command that was stopped continues.",
)
def distill(
    run: RunName,
    teacher: Checkpoint,
    *,
    out: Annotated[str, out_option("Folder to write, below the root of the run's data.")],
    ensemble: Annotated[
        list[str] | None,
        option(
            "--ensemble",
            "Another checkpoint with the same tokenizer; the probabilities of the models are "
            "averaged. Repeat the option for several.",
            metavar="CHECKPOINT",
            complete=complete_files,
        ),
    ] = None,
    overrides: Overrides = None,
    predict: Annotated[
        list[str] | None,
        option(
            "--predict",
            "Change a setting of the teacher's predictor, such as beam=5. Repeat the option for "
            "several.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    closest: Annotated[
        bool,
        typer.Option(
            "--closest",
            help="Keep, of `nbest` answers for each row, the one that is most similar to the row's "
            "own text.",
        ),
    ] = False,
) -> None:
    """Translate the training data of a run with a teacher, to train another model on it.

    Raises:
        InputError: the data, the teacher or the folder is wrong.
    """
    from ..distilling import distill as made

    with terminal.Reporter().shown() as reporter:
        distilled = made(
            run,
            teacher,
            out,
            ensemble=ensemble or (),
            overrides=overridden(overrides),
            predict=overridden(predict),
            closest=closest,
            progress=reporter.distilled,
        )
    terminal.notice(f"written  {distilled.folder}: {distilled.rows:,} rows")
    read = {"data.train": distilled.train, "tokenizers": distilled.tokenizers}
    words = {name: shlex.quote(json.dumps(value)) for name, value in read.items() if value}
    print(" ".join(f"--set {name}={word}" for name, word in words.items()))
