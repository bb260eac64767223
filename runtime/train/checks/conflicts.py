"""Settings of a run that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from ....specs.findings import Finding
from ...data.settings import SPECIAL_TOKENS
from ..run import Run

BYTES = 256
"""Number of pieces of the bytes in a vocabulary with `byte_fallback`."""


def conflicts(run: Run) -> Iterator[Finding]:
    """Yield a finding for each setting that cannot be fulfilled because of another one."""
    yield from _parallel(run)
    yield from _tokenizer(run)
    yield from _search(run)


def _conflict(at: str, problem: str, help_: str) -> Finding:
    return Finding(code="R04", at=at, problem=problem, help=help_)


def _parallel(run: Run) -> Iterator[Finding]:
    data, tensor, kind = run.parallel.data, run.parallel.tensor, run.optimizer.type
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


def _tokenizer(run: Run) -> Iterator[Finding]:
    settings = run.tokenizer
    fixed = len(SPECIAL_TOKENS) + len(settings.user_symbols) + BYTES * settings.byte_fallback
    if settings.vocab_size <= fixed:
        parts = [f"{len(SPECIAL_TOKENS)} special tokens"]
        parts += [f"{len(settings.user_symbols)} user symbols"] * bool(settings.user_symbols)
        parts += [f"{BYTES} bytes"] * settings.byte_fallback
        yield _conflict(
            "/tokenizer/vocab_size",
            f"{settings.vocab_size} pieces have no room for text beside {', '.join(parts)}",
            f"set it to more than {fixed}",
        )
    if settings.target == "pieces" and run.task == "parsing" and run.parsing.decoder != "sequence":
        yield _conflict(
            "/tokenizer/target",
            f"the decoder '{run.parsing.decoder}' predicts symbols, not pieces",
            "remove it, or set 'parsing.decoder' to 'sequence'",
        )


def _search(run: Run) -> Iterator[Finding]:
    search = run.search
    if run.task == "mask_predict":
        left = {
            "sample": search.sample is not None,
            "avoid": bool(search.avoid),
            "groups": search.groups > 1,
            "no_repeat": search.no_repeat > 0,
            "min_length": search.min_length > 0,
        }
        for name, is_set in left.items():
            if is_set:
                problem = f"'{name}' needs a search from left to right, but the task is"
                yield _conflict(f"/search/{name}", f"{problem} 'mask_predict'", "remove it")
    elif run.evaluate.bleu and run.evaluate.beam > 1 and run.evaluate.beam % search.groups:
        yield _conflict(
            "/evaluate/beam",
            f"'beam' {run.evaluate.beam} is not divisible by 'search.groups' {search.groups}",
            f"set it to 1 or to a multiple of {search.groups}",
        )
