"""Batches whose lengths are too much alike, or whose limit does not fit the model; no torch."""

from __future__ import annotations

from collections.abc import Iterator

from ....graphs.ir.graph import Graph
from ....graphs.passes.objective import trained_models
from ....graphs.passes.unpad import plan_unpad
from ....specs.findings import Finding, InputError, pointer
from ...data.columns.column_settings import TextSettings
from ...data.readers.split import reader_of
from ...data.streams import ENDINGS
from ..run import Run

BYTES = 4.5
"""Bytes of a token of a text, about: a piece of a sub-word vocabulary, or a short word."""
RATIO = 3
"""Bytes of a text for each byte of its compressed file, about."""
ALIKE = 100
"""Batches in a sorted pool from which most of them hold texts of one length: there are fewer
lengths of sentences."""


def uniform_updates(run: Run) -> Iterator[Finding]:
    """Yield a warning if each update of a run holds texts of one length.

    It does if a batch is an update, and is cut from a pool with more batches than lengths.  The
    number of batches in an epoch is estimated from the sizes of the files.
    """
    if run.accumulate > 1 or run.batch.pool < ALIKE:
        return
    batches = _batches_in_epoch(run)
    if batches is not None and min(batches, run.batch.pool) >= ALIKE:
        pool = min(batches, run.batch.pool)
        yield one_length(run, f"an epoch has about {batches:,.0f} batches", pool)


def one_length(run: Run, evidence: str, pool: float | None = None) -> Finding:
    """Return the warning that each update holds texts of one length.

    Args:
        run: the run.
        evidence: how this is known.
        pool: batches in a sorted pool, if their number is estimated.
    """
    sorted_ = f"about {pool:,.0f} batches" if pool else "all batches of a pool"
    quarter = max(2, run.batch.tokens // 4)
    return Finding(
        code="R07",
        at="/batch/pool" if "pool" in run.batch.model_fields_set else "/accumulate",
        problem=f"an update holds texts of one length: it is one batch, and {sorted_} are sorted"
        " together",
        evidence=(evidence,),
        help=f"set 'accumulate' to 4 and 'batch.tokens' to {quarter}; or, where the model is"
        " unpadded, 'batch.pool' to 1 and 'batch.count' to 'real'",
        level="warning",
    )


def _batches_in_epoch(run: Run) -> float | None:
    """Return the number of batches in an epoch by the sizes of the files; None if unknown."""
    texts = [column for column in run.data.columns.values() if isinstance(column, TextSettings)]
    split = run.data.train
    rows_are_cut = any(column.block or column.segment for column in texts)
    if not texts or rows_are_cut or not split.settings.quick:
        return None
    try:
        files = reader_of(split, run.data.root).files()
        sizes = [
            path.stat().st_size * (RATIO if path.name.endswith(ENDINGS) else 1)
            for path in files.values()
        ]
    except (InputError, OSError):
        return None  # reported as missing files
    fields = len(split.settings.fields() or run.data.columns)
    return sum(sizes) / BYTES / fields / run.batch.tokens


def unfit_count(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding if the limit of a batch leaves out padding that the model computes."""
    if run.batch.count != "real":
        return
    why = stays_padded(graph)
    at = "/batch/count"
    if "unpad" in run.without:
        number = run.without.index("unpad")
        why = f"'without' leaves out the pass 'unpad' ({pointer('without', number)})"
    if why:
        yield Finding(
            code="R04",
            at=at,
            problem=f"'real' leaves padding out of the limit of a batch, but {why}",
            help="set it to 'padded', or remove it",
        )


def stays_padded(graph: Graph) -> str:
    """Return why no model of an objective can be unpadded; "" if one can."""
    models = trained_models(graph).values() or [graph]
    plans = {model.name: plan_unpad(model) for model in models}
    if any(plan.axes for plan in plans.values()):
        return ""
    name, plan = next(iter(plans.items()))
    return f"'{name}' cannot be unpadded: {plan.why}"
