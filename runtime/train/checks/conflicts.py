"""Settings of a run that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from ....specs.findings import Finding, did_you_mean, pointer
from ...data.settings import SPECIAL_TOKENS, PieceSettings
from ..run import Run

BYTES = 256
"""Number of pieces of the bytes in a vocabulary with `byte_fallback`."""


def conflicts(run: Run) -> Iterator[Finding]:
    """Yield a finding for each setting that cannot be fulfilled because of another one."""
    yield from _parallel(run)
    for name, tokenizer in run.tokenizers.items():
        if isinstance(tokenizer, PieceSettings):
            yield from _tokenizer(name, tokenizer)
    yield from _metrics(run)


def _metrics(run: Run) -> Iterator[Finding]:
    """Yield a finding for each metric that cannot compare the values of its column."""
    settings = run.evaluate
    places = [(m, pointer("evaluate", "metrics", n)) for n, m in enumerate(settings.metrics)]
    if settings.best.name not in {metric.name for metric in settings.metrics}:
        places.append((settings.best, "/evaluate/best"))
    for metric, at in places:
        name = metric.column or run.answers
        if metric.needs != "predictions" or name is None:
            continue
        if name not in run.data.columns:
            yield Finding(
                code="R04",
                at=f"{at}/column",
                problem=f"the metric '{metric.type}' compares with the column '{name}',"
                " which does not exist",
                help=did_you_mean(name, run.data.columns),
            )
            continue
        kind = run.data.columns[name].type
        if metric.takes and kind not in metric.takes:
            yield _conflict(
                at,
                f"the metric '{metric.type}' compares values of type"
                f" {' or '.join(metric.takes)}, but the column '{name}' has the type {kind}",
                "docs/metrics.md lists the metrics of each type",
            )


def _conflict(at: str, problem: str, help_: str) -> Finding:
    return Finding(code="R04", at=at, problem=problem, help=help_)


def _parallel(run: Run) -> Iterator[Finding]:
    data, tensor, kind = run.parallel.data, run.parallel.tensor, run.optimizer.type
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
    elif (data == "fsdp" or tensor > 1) and kind not in ("adam", "adamw"):
        yield _conflict(
            "/optimizer/type",
            f"'{kind}' needs unsharded weights, but 'parallel' shards them",
            "use 'adam' or 'adamw', or set 'parallel.data' to 'ddp' and 'parallel.tensor' to 1",
        )


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
