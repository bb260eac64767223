"""Settings of a run that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from ....specs.findings import Finding, pointer
from ...data.settings import SPECIAL_TOKENS, PieceSettings
from ..run import Run
from .metrics import metric_places, wrong_metrics

BYTES = 256
"""Number of pieces of the bytes in a vocabulary with `byte_fallback`."""


def conflicts(run: Run) -> Iterator[Finding]:
    """Yield a finding for each setting that cannot be fulfilled because of another one."""
    yield from _parallel(run)
    for name, tokenizer in run.tokenizers.items():
        if isinstance(tokenizer, PieceSettings):
            yield from _tokenizer(name, tokenizer)
    yield from wrong_metrics(run, metric_places(run))


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
