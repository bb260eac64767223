"""The command `weft distill`: answer the training data of a run with a trained model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

from ..common import terminal
from ..common.command import STUDIES, command
from ..common.parameters import (
    Checkpoint,
    Overrides,
    RunName,
    option,
    out_option,
    overridden,
)


@command(
    STUDIES,
    "weft distill multi30k-en-de outputs/teacher/averaged --out data/multi30k/distilled "
    "--predict beam=5",
    note="Sequence-level distillation, Kim & Rush 2016. The folder contains the rows as lines, and "
    "from what they were made. A command that was stopped continues.",
)
def distill(
    run: RunName,
    teacher: Checkpoint,
    *,
    out: Annotated[str, out_option("Folder to write, below the root of the run's data.")],
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
) -> None:
    """Translate the training data of a run with a teacher, to train another model on it.

    Raises:
        InputError: the data, the teacher or the folder is wrong.
    """
    from ...study.distilling import distill as made
    from ...train.run import load_run

    settings, _ = load_run(run, overridden(overrides))
    changes = overridden(predict)
    found = made(settings, Path(teacher), Path(out), predict=changes, log=terminal.notice)
    terminal.notice(f"written  {found.folder}: {found.rows:,} rows")
    print(f"--set data.train={shlex.quote(json.dumps(found.train))}")
