"""Whether the checkpoints of a run fit on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from ....graphs.ir.graph import Graph
from ....specs.findings import Finding
from ...checkpoint.saving import RESERVE
from ..resuming.retention import RESUMABLE, checkpoints
from ..run import Run

_FLOAT = 4
"""Bytes of a float32."""
MOMENTS = {"adam": 2, "adamw": 2, "muon": 1, "sgd": 1, "adafactor": 0}
"""Least number of floats that an optimizer stores for each weight."""


def disk_space(run: Run, graph: Graph, folder: Path) -> Iterator[Finding]:
    """Yield a finding if the checkpoints of a new run certainly do not fit on the disk.

    Args:
        run: the run.
        graph: graph of what trains: its model or its objective.
        folder: folder of the run; it need not exist.
    """
    if checkpoints(folder):
        return  # a resumed run, most of whose checkpoints exist already
    settings = run.checkpoint
    written = -(-run.updates // settings.every)
    average = 0 if settings.ema is not None else settings.average
    kept = min(max(settings.keep, average, RESUMABLE), written)
    moments = (MOMENTS[run.optimizer.type] + (settings.ema is not None)) * min(RESUMABLE, written)
    copies = (
        kept + moments + 1 + bool(settings.average or settings.ema)
    )  # and `best` and `averaged`
    needed = graph.parameters() * _FLOAT * copies + RESERVE
    existing = next(
        path for path in [folder.absolute(), *folder.absolute().parents] if path.is_dir()
    )
    free = shutil.disk_usage(existing).free
    if free < needed:
        yield Finding(
            code="R05",
            at="/checkpoint",
            problem=f"the checkpoints need {needed >> 20:,} MiB, but '{folder}' has {free >> 20:,}"
            " MiB of free disk space",
            help="free disk space, lower 'keep' and 'average', or give another folder with --out",
        )
