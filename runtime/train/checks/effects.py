"""Settings of a run without effect, and settings that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....specs.findings import Finding, did_you_mean, pointer
from ...checkpoint.curve import changes_gradually, misplaced
from ...data.columns.column_settings import (
    ClassSettings,
    ImageSettings,
    NumberSettings,
    TextSettings,
)
from ...data.settings import SPECIAL_TOKENS, PieceSettings, SymbolSettings
from ..recipe.schedule import wrong_schedule
from ..run import Run
from .metrics import metric_places, wrong_metrics

if TYPE_CHECKING:
    import torch

    from ..run import Run


def without_effect(run: Run, *, shortened: bool = False) -> Iterator[Finding]:
    """Yield a finding for each setting that was changed but has no effect.

    Args:
        run: the run.
        shortened: whether the number of updates was overridden, as one does to try a run: what
            happens after its last update is then not reported.
    """
    for name, tokenizer in run.tokenizers.items():
        if not isinstance(tokenizer, SymbolSettings):
            continue
        if tokenizer.only == "all" and tokenizer.spelling is not None:
            yield unused(
                pointer("tokenizers", name, "spelling"),
                "'spelling' encodes tokens that are not symbols, but here all tokens are symbols",
                "remove it, or set 'only' to 'brackets'",
            )
    yield from _evaluation(run)
    yield from _search(run)
    yield from _batch(run)
    yield from _curves(run, shortened=shortened)
    if not shortened:
        yield from _beyond_the_end(run)
    average = 0 if run.checkpoint.ema is not None else run.checkpoint.average
    if run.checkpoint.keep < average and changed(run.checkpoint, "keep"):
        yield unused(
            "/checkpoint/keep",
            f"'keep' is {run.checkpoint.keep}, but the {run.checkpoint.average} newest checkpoints"
            " are kept for 'average'",
            "remove it, or lower 'average'",
        )
    both_set = run.checkpoint.ema is not None and run.checkpoint.average
    if both_set and changed(run.checkpoint, "average"):
        problem = "with 'ema', no mean of checkpoints is written"
        yield unused("/checkpoint/average", problem, "set it to 0, or remove 'ema'")
    if run.checkpoint.sharded and run.parallel.data == "ddp":
        problem = "'ddp' replicates all weights, so there are no shards to write"
        help_ = "remove it, or set 'parallel.data' to 'fsdp'"
        yield unused("/checkpoint/sharded", problem, help_)


def unused(at: str, problem: str, help_: str) -> Finding:
    """Return the finding about a setting without effect."""
    return Finding(code="R01", at=at, problem=problem, help=help_)


_TOKENS = 2
"""Fewest tokens of a batch: a token and the end token."""


def changed(settings: Any, name: str) -> bool:
    """Return whether a setting differs from its default."""
    field = type(settings).model_fields[name]
    return bool(getattr(settings, name) != field.get_default(call_default_factory=True))


def _beyond_the_end(run: Run) -> Iterator[Finding]:
    """Yield a finding for each setting that takes effect only after the last update."""
    updates = run.updates
    patience, validations = run.evaluate.patience, -(-updates // run.evaluate.every)
    if patience is not None and patience >= validations:
        problem = f"the run has {validations} validations, so it cannot stop after {patience}"
        help_ = "lower 'patience' or 'every', or remove 'patience'"
        yield unused("/evaluate/patience", f"{problem} without improvement", help_)


def _curves(run: Run, *, shortened: bool) -> Iterator[Finding]:
    """Yield a finding for each piece of a curve that the run does not reach or complete."""
    yield from wrong_schedule(run.schedule, run.updates, shortened=shortened)
    curves: dict[str, Any] = {"/accumulate": run.accumulate, "/dropout": run.dropout}
    curves["/batch/tokens"] = run.batch.tokens
    curves |= {pointer("values", name): value for name, value in run.values.items()}
    settings = {"/optimizer": run.optimizer}
    settings |= {
        pointer("optimizer", "groups", number): run.optimizer.of_group(group)
        for number, group in enumerate(run.optimizer.groups)
    }
    for at, optimizer in settings.items():
        curves |= {at + pointer(name): curve for name, curve in optimizer.curves().items()}
    least = run.token_range()[0]
    if least < _TOKENS:
        yield Finding(
            code="R08",
            at="/batch/tokens",
            problem=f"batches of {least} tokens hold no text",
            help="write values from 2; the first piece begins at 0 unless 'from' says more",
        )
    for at, curve in curves.items():
        yield from () if shortened else misplaced(curve, run.updates, at)


def _evaluation(run: Run) -> Iterator[Finding]:
    """Yield a finding for each setting of the validations that has no effect."""
    settings = run.evaluate
    names = [metric.name for metric in run.metrics()]
    for name in settings.until.keys() - {*names}:
        help_ = did_you_mean(name, names) or "add it to 'evaluate.metrics'"
        yield unused(pointer("evaluate", "until", name), f"nothing measures '{name}'", help_)
    fields_set = settings.model_fields_set
    if run.predict is None:
        if "rows" in fields_set and settings.rows is not None:
            problem = "'rows' limits the rows that are predicted, but the run does not predict"
            yield unused("/evaluate/rows", problem, "remove it, or add 'predict' and 'answers'")
        if "samples" in fields_set and settings.samples:
            problem = "'samples' logs predictions, but the run does not predict"
            yield unused("/evaluate/samples", problem, "remove it, or add 'predict' and 'answers'")
        if "pictures" in fields_set and settings.pictures:
            problem = "'pictures' shows predictions, but the run does not predict"
            yield unused("/evaluate/pictures", problem, "remove it, or add 'predict' and 'answers'")
        return
    if settings.pictures and changed(settings, "pictures") and not run.trackers:
        problem = "'pictures' are logged to trackers, but the run has none"
        yield unused("/evaluate/pictures", problem, "remove it, or add a tracker to 'trackers'")
    predicted = any(metric.needs == "predictions" for metric in run.metrics())
    if settings.pictures and changed(settings, "pictures") and not (predicted or settings.samples):
        problem = "'pictures' shows predictions, but validations do not predict"
        yield unused("/evaluate/pictures", problem, "remove it, or raise 'samples'")
    if not predicted and settings.rows is not None:
        problem = "'rows' limits the rows of metrics of predictions, but there is none"
        yield unused("/evaluate/rows", problem, "remove it, or add a metric such as accuracy")
    if settings.predict and not predicted and not settings.samples:
        problem = "'predict' changes how validations predict, but they do not"
        yield unused("/evaluate/predict", problem, "remove it, or add a metric such as bleu")


def _search(run: Run) -> Iterator[Finding]:
    """Yield a finding for each setting of a search that another one makes idle."""
    search: Any = run.predict
    if search is None or search.type not in ("beam", "tree_beam"):
        return
    readers = (
        ("alpha", search.penalty != "none", "'penalty' is 'none'"),
        ("diversity", search.groups > 1, "'groups' is 1"),
        ("ends", search.beam > 1, "'beam' is 1"),
    )
    for name, is_read, why in readers:
        if not is_read and changed(search, name):
            yield unused(f"/predict/{name}", f"'{name}' has no effect: {why}", "remove it")
    if search.max_length is not None and search.min_length > search.max_length:
        yield unused(
            "/predict/min_length",
            f"'min_length' is {search.min_length}, but 'max_length' is {search.max_length}",
            f"set it to at most {search.max_length}, or raise 'max_length'",
        )


def _batch(run: Run) -> Iterator[Finding]:
    """Yield a finding if the size of a batch has no effect, or is not limited."""
    fields_set = run.batch.model_fields_set
    cut = [
        name
        for name, column in run.data.columns.items()
        if isinstance(column, TextSettings) and (column.block or column.segment)
    ]
    for key in ("count", "pool"):
        if key in fields_set and changed(run.batch, key) and (cut or not has_time_axis(run)):
            why = f"the column '{cut[0]}' has rows of one length" if cut else "rows have no lengths"
            yield unused(f"/batch/{key}", f"'{key}' has no effect: {why}", "remove it")
    if has_time_axis(run):
        return
    if run.batch.max_sentences is None:
        yield Finding(
            code="R04",
            at="/batch",
            problem="no column has a time axis, so 'tokens' does not limit a batch",
            help="set 'max_sentences' to the number of rows of a batch",
        )
    elif "batch" in run.model_fields_set and "tokens" in fields_set:
        yield unused(
            "/batch/tokens",
            "no column has a time axis, so there are no tokens",
            "remove it; 'max_sentences' limits the rows of a batch",
        )


BYTES = 256
"""Number of pieces of the bytes in a vocabulary with `byte_fallback`."""


def conflicts(run: Run) -> Iterator[Finding]:
    """Yield a finding for each setting that cannot be fulfilled because of another one."""
    yield from _parallel(run)
    if run.compile == "layers" and changes_gradually(run.dropout):
        yield _conflict(
            "/compile",
            "'dropout' changes gradually, so layers would be compiled at each update",
            "set it to 'auto' or 'eager', or change 'dropout' in steps, without 'to'",
        )
    for name, tokenizer in run.tokenizers.items():
        if isinstance(tokenizer, PieceSettings):
            yield from _tokenizer(name, tokenizer)
    yield from wrong_metrics(run, metric_places(run))


def _conflict(at: str, problem: str, help_: str) -> Finding:
    return Finding(code="R04", at=at, problem=problem, help=help_)


def _parallel(run: Run) -> Iterator[Finding]:
    data, tensor = run.parallel.data, run.parallel.tensor
    if tensor > 1 and run.precision == "float16":
        yield _conflict(
            "/precision",
            "loss scaling does not support blocks that are partitioned over processes",
            "set it to 'bfloat16' or 'float32', or 'parallel.tensor' to 1",
        )
    if data == "ddp" and tensor > 1:
        yield _conflict(
            "/parallel/data",
            f"'ddp' replicates all weights, but 'tensor' partitions them over {tensor} processes",
            "set it to 'fsdp', or leave it out",
        )
    if run.parallel.shard is not None and (data == "ddp" or (data == "auto" and tensor == 1)):
        yield _conflict(
            "/parallel/shard",
            "it has no effect: only 'fsdp' shards weights",
            "set 'parallel.data' to 'fsdp', or remove it",
        )
    if data != "ddp" and run.precision == "float16":
        optimizers = [run.optimizer, *map(run.optimizer.of_group, run.optimizer.groups)]
        for kind in (settings.type for settings in optimizers if not settings.elementwise):
            yield _conflict(
                "/precision",
                f"loss scaling does not support '{kind}' where 'parallel' shards the weights",
                "set it to 'bfloat16' or 'float32', or 'parallel.data' to 'ddp'",
            )
            break


def _tokenizer(name: str, settings: PieceSettings) -> Iterator[Finding]:
    """Yield a finding if the pieces of a tokenizer have no room for text."""
    fixed = len(SPECIAL_TOKENS) + len(settings.user_symbols) + BYTES * settings.byte_fallback
    if settings.vocab_size > fixed:
        return
    parts = [f"{len(SPECIAL_TOKENS)} special tokens"]
    parts += [f"{len(settings.user_symbols)} user symbols"] * bool(settings.user_symbols)
    parts += [f"{BYTES} bytes"] * settings.byte_fallback
    yield _conflict(
        pointer("tokenizers", name, "vocab_size"),
        f"{settings.vocab_size} pieces have no room for text beside {', '.join(parts)}",
        f"set it to more than {fixed}",
    )


_TIMELESS = (ClassSettings, ImageSettings, NumberSettings)
"""Columns without a time axis, so without tokens."""

FULL = 16_384
"""Tokens of a batch whose kernels take longer than their launches on current GPUs, about."""


def has_time_axis(run: Run) -> bool:
    """Return whether a column has a time axis, so that `batch.tokens` limits a batch."""
    return not all(isinstance(column, _TIMELESS) for column in run.data.columns.values())


def special_tokens(run: Run) -> int:
    """Return the largest number of special tokens that a text column adds to a text."""
    texts = [column for column in run.data.columns.values() if isinstance(column, TextSettings)]
    return max((column.begin + column.end for column in texts), default=0)


def longest_text(run: Run) -> int | None:
    """Return the tokens that a text may have, special tokens included; None without a limit."""
    longest = run.data.filter.max_length
    if longest is None:
        return None
    texts = [column for column in run.data.columns.values() if isinstance(column, TextSettings)]
    cut = min(
        (column.max_length for column in texts if column.max_length is not None), default=None
    )
    longest += special_tokens(run)
    return longest if cut is None else min(longest, cut)


def batch_advice(run: Run, device: torch.device, processes: int) -> str:
    """Return a line about batches that are too small for a GPU, or "".

    Args:
        run: the run.
        device: device of the training.
        processes: data-parallel processes, which share the batches of an update.
    """
    tokens, batches = run.token_range()[1], run.batch_range()[1]
    changing = isinstance(run.accumulate, tuple) or isinstance(run.batch.tokens, tuple)
    if device.type != "cuda" or tokens >= FULL or not has_time_axis(run) or changing:
        return ""
    fewer = [
        count
        for count in range(processes, batches, processes)
        if batches % count == 0 and tokens * batches // count <= 2 * FULL
    ]
    if not fewer:
        return ""
    larger = tokens * batches // fewer[0]
    return (
        f"advice: a GPU is faster with larger batches: 'batch.tokens' {larger} and 'accumulate'"
        f" {fewer[0]} have the tokens of {tokens} and {batches} in an update"
    )
