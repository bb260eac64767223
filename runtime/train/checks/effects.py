"""Settings of a run that were changed from their defaults but have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....specs.findings import Finding, pointer
from ...data.treebank.settings import ParsingSettings
from ..run import Run

FROM_THE_LEFT = frozenset(
    ["beam", "penalty", "alpha", "ends", "max_factor", "max_extra", "repetition_penalty"]
)
"""Settings that only a search from left to right reads."""


def without_effect(run: Run, *, shortened: bool = False) -> Iterator[Finding]:
    """Yield a finding for each setting that was changed but has no effect.

    Args:
        run: the run.
        shortened: whether the number of updates was overridden, as one does to try a run.
    """
    yield from _optimizer(run)
    yield from _evaluation(run)
    yield from _search(run)
    yield from _data(run)
    yield from _loss(run)
    yield from _parsing(run)
    yield from _distribution(run)
    if not shortened:
        yield from _beyond_the_end(run)
    if run.checkpoint.keep < run.checkpoint.average and changed(run.checkpoint, "keep"):
        yield unused(
            "/checkpoint/keep",
            f"'keep' is {run.checkpoint.keep}, but the {run.checkpoint.average} newest checkpoints"
            " are kept for 'average'",
            "remove it, or lower 'average'",
        )


def unused(at: str, problem: str, help_: str) -> Finding:
    """Return the finding about a setting without effect."""
    return Finding(code="R01", at=at, problem=problem, help=help_)


def changed(settings: Any, name: str) -> bool:
    """Return whether a setting differs from its default."""
    field = type(settings).model_fields[name]
    return bool(getattr(settings, name) != field.get_default(call_default_factory=True))


def _beyond_the_end(run: Run) -> Iterator[Finding]:
    """Yield a finding for each setting that takes effect only after the last update."""
    updates, schedule = run.updates, run.schedule
    if run.dropout_from > updates:
        problem = f"dropout begins at update {run.dropout_from}, but the run ends at {updates}"
        yield unused("/dropout_from", problem, f"set it to at most {updates}, or leave it out")
    if schedule.warmup > updates:
        at = "/schedule/warmup" if changed(schedule, "warmup") else "/updates"
        yield unused(
            at,
            f"the warmup has {schedule.warmup} updates, but the run ends at {updates}",
            f"set 'schedule.warmup' to less than {updates}, or 'updates' to more",
        )
    elif schedule.type == "cosine" and schedule.total < updates and schedule.floor == 0:
        problem = (
            f"the learning rate is 0 from update {schedule.total} on, but the run has {updates}"
        )
        yield unused("/schedule/total", problem, f"set 'total' to {updates}, or a 'floor'")
    patience, validations = run.evaluate.patience, -(-updates // run.evaluate.every)
    if patience is not None and patience >= validations:
        problem = f"the run has {validations} validations, so it cannot stop after {patience}"
        help_ = "lower 'patience' or 'every', or remove 'patience'"
        yield unused("/evaluate/patience", f"{problem} without improvement", help_)


def _optimizer(run: Run) -> Iterator[Finding]:
    kind = run.optimizer.type
    users = {
        "betas": ("adam", "adamw", "muon"),
        "momentum": ("muon", "sgd"),
        "eps": ("adam", "adamw", "muon"),
    }
    for name, readers in users.items():
        if kind not in readers and changed(run.optimizer, name):
            yield unused(
                f"/optimizer/{name}",
                f"the optimizer '{kind}' has no '{name}'",
                f"remove it, or set 'type' to one of {', '.join(readers)}",
            )


def _evaluation(run: Run) -> Iterator[Finding]:
    settings = run.evaluate
    if settings.bleu:
        if run.task == "parsing" and settings.lowercase:
            problem = "'lowercase' is about BLEU, but the task is 'parsing'"
            yield unused("/evaluate/lowercase", problem, "remove it")
        return
    if run.best != "nll":
        yield Finding(
            code="R01",
            at="/evaluate/bleu" if settings.best is None else "/evaluate/best",
            problem=f"the best checkpoint is chosen by '{run.best}', which 'bleu': false turns off",
            help="set 'best' to 'nll', or 'bleu' to true",
        )
    for name in ("beam", "sentences", "lowercase"):
        if changed(settings, name):
            problem = f"'{name}' is about translations of the validation text, which are turned off"
            yield unused(f"/evaluate/{name}", problem, "remove it, or set 'bleu' to true")


def _search(run: Run) -> Iterator[Finding]:
    search, masks = run.search, run.task == "mask_predict"
    of_task = f"the task is '{run.task}'"
    if run.task == "parsing" and run.parsing.decoder != "sequence":
        if run.search != type(search)():
            problem = f"a parser with the decoder '{run.parsing.decoder}' does not search"
            yield unused("/search", problem, "remove it, or set 'parsing.decoder' to 'sequence'")
        return
    no_ends = "'beam' is 1" if search.beam == 1 else "'sample' replaces the search"
    readers = (
        *((name, not masks, of_task) for name in sorted(FROM_THE_LEFT)),
        ("alpha", search.penalty != "none" or masks, "'penalty' is 'none'"),
        ("diversity", search.groups > 1, "'groups' is 1"),
        ("ends", masks or (search.beam > 1 and search.sample is None), no_ends),
        ("iterations", masks, of_task),
        ("lengths", masks, of_task),
    )
    for name, is_read, why in readers:
        if not is_read and changed(search, name):
            yield unused(f"/search/{name}", f"'{name}' has no effect: {why}", "remove it")
    if search.max_length is not None and search.min_length > search.max_length:
        yield unused(
            "/search/min_length",
            f"'min_length' is {search.min_length}, but 'max_length' is {search.max_length}",
            f"set it to at most {search.max_length}, or raise 'max_length'",
        )


def _data(run: Run) -> Iterator[Finding]:
    tests = ((("test", name), files) for name, files in run.data.test.items())
    for where, files in ((("valid",), run.data.valid), *tests):
        if files.weights is not None:
            problem = "only training files are weighted"
            yield unused(pointer("data", *where, "weights"), problem, "remove it")


def _loss(run: Run) -> Iterator[Finding]:
    if run.task == "parsing" and run.parsing.decoder != "sequence":
        for name in ("smoothing", "spread"):
            if getattr(run.loss, name) and changed(run.loss, name):
                problem = f"the loss of the decoder '{run.parsing.decoder}' is not smoothed"
                yield unused(f"/loss/{name}", problem, "remove it")
    elif run.loss.smoothing == 0 and changed(run.loss, "spread"):
        problem = "'smoothing' is 0, so there is nothing to spread"
        yield unused("/loss/spread", problem, "remove it, or set 'smoothing'")


def _parsing(run: Run) -> Iterator[Finding]:
    if run.task != "parsing":
        if run.parsing != ParsingSettings():
            problem = f"the task '{run.task}' does not read 'parsing'"
            yield unused("/parsing", problem, "remove it, or set 'task' to 'parsing'")
        return
    decoder = run.parsing.decoder
    for name in ("linearization", "constrained"):
        if decoder != "sequence" and changed(run.parsing, name):
            problem = f"the decoder '{decoder}' does not read '{name}'"
            help_ = "remove it, or set 'decoder' to 'sequence'"
            yield unused(f"/parsing/{name}", problem, help_)


def _distribution(run: Run) -> Iterator[Finding]:
    if run.checkpoint.sharded and run.parallel.data == "ddp":
        problem = "'ddp' replicates all weights, so there are no shards to write"
        help_ = "remove it, or set 'parallel.data' to 'fsdp'"
        yield unused("/checkpoint/sharded", problem, help_)
