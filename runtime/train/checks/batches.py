"""Batches whose lengths are too much alike, or whose limit does not fit the model; no torch."""

from __future__ import annotations

from collections.abc import Iterator

from ....graphs.ir.graph import Graph
from ....graphs.passes.objective import trained_models
from ....graphs.passes.unpad import plan_unpad
from ....specs.findings import Finding, InputError, pointer
from ...data.columns.column_settings import TextSettings
from ...data.plans.mixture import ends_of
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
    if run.batch_range()[0] > 1 or run.batch.pool < ALIKE:
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
    quarter = max(2, run.token_range()[0] // 4)
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
    rows_are_cut = any(column.block or column.segment for column in texts)
    if not texts or rows_are_cut or run.data.prepared is not None:
        return None
    tokens = 0.0
    for source in run.data.train.by_place().values():
        if not source.settings.quick:
            return None
        fields = len(source.settings.fields() or run.data.columns)
        try:
            for path in reader_of(source, run.data.root).files().values():
                size = path.stat().st_size * (RATIO if path.name.endswith(ENDINGS) else 1)
                tokens += size / BYTES / fields
        except (InputError, OSError):
            return None  # reported as missing files
    return tokens / run.token_range()[1]


def stages_without_effect(run: Run, *, shortened: bool = False) -> Iterator[Finding]:
    """Yield a finding for each stage of the mixture that does not happen or changes nothing.

    Args:
        run: the run.
        shortened: whether the number of updates was overridden, as one does to try a run: stages
            after the last update are then not reported.
    """
    stages, sources = run.data.mixture, run.data.train.sources
    begin = 0
    for number, (stage, end) in enumerate(zip(stages, ends_of(stages, run.updates), strict=True)):
        at = pointer("data", "mixture", number)
        if begin >= run.updates and not shortened:
            problem = f"the stage begins after update {begin}, but the run ends at {run.updates}"
            help_ = "let the stage before it end earlier, or remove it"
            yield Finding(code="R01", at=at, problem=problem, help=help_)
        if end is not None and end <= begin:
            yield Finding(
                code="R04",
                at=f"{at}/until",
                problem=f"the stage ends with update {end}, before it begins with {begin + 1}",
                help=f"set 'until' to more than {begin}, or a larger share of the"
                f" {run.updates} updates",
            )
        begin = max(begin, end or 0)
        equal = all(weight == 1.0 for weight in stage.weights.values())
        if len(stages) == 1 and stage.temperature is None and equal:
            problem = "all weights are 1, so that each row occurs once, as without a mixture"
            yield Finding(code="R01", at="/data/mixture", problem=problem, help="remove it")
    for name in sources:
        if stages and all(
            stage.weights.get(name) == 0 and any(stage.weights.get(n, 1.0) for n in sources)
            for stage in stages
        ):
            at = pointer("data", "train", "sources", name)
            problem = f"the weight of '{name}' is 0 in all stages, so its rows are never used"
            help_ = "remove it, or give it a weight"
            yield Finding(code="R01", at=at, problem=problem, help=help_)


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
