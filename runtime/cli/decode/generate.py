"""The command `weft generate`: continue prompts with a decoder-only model."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from itertools import islice
from typing import Any

from ....specs.findings import InputError
from ... import api
from ...checkpoint.tokenizers import prompts_of
from ...data.hub import Prompts
from ...decode.generate import Continuation, check_generates
from ..opened import placed, steps_for
from .translate import utf8_lines

_NAMES = ("max_new", "temperature", "top_k", "top_p", "min_p", "seed", "samples")


def generate(options: Namespace) -> None:
    """Print continuations of each line of stdin.

    Raises:
        InputError: the checkpoint cannot be opened, cannot generate or has no tokenizer,
            or a line does not consist of ids.
    """
    device, precision = placed(options)
    model = api.open_model(
        options.checkpoint, device=device, precision=precision, steps=steps_for(options)
    )
    check_generates(model.graph)
    tokenizer = None if options.ids else prompts_of(model.checkpoint)
    given = {name: getattr(options, name) for name in _NAMES}
    settings = {name: value for name, value in given.items() if value is not None}
    each = settings.get("samples", 1)
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    lines = enumerate(utf8_lines(sys.stdin.buffer, "continuing from an empty line"), 1)
    try:
        while rows := list(islice(lines, max(1, options.batch))):
            prompts = [_ids(tokenizer, number, line) for number, line in rows]
            found = model.generate(prompts, **settings)
            for place, (number, line) in enumerate(rows):
                mine = found[place * each : (place + 1) * each]
                if options.json:
                    records = [_record(tokenizer, one) for one in mine]
                    record = {"line": number, "prompt": line, "continuations": records}
                    out.write(json.dumps(record, ensure_ascii=False) + "\n")
                else:
                    _write_plain(out, tokenizer, mine)
            out.flush()
    finally:
        out.detach()


def _ids(tokenizer: Prompts | None, number: int, line: str) -> list[int]:
    """Return the ids of a prompt.

    Raises:
        InputError: a line of ids has other text, or the prompt is empty.
    """
    place = f"line {number}"
    if tokenizer is not None:
        found = tokenizer.prompt(line)
    else:
        try:
            found = [int(one) for one in line.split()]
        except ValueError:
            raise InputError(
                "not a line of token ids",
                place=place,
                help="write whole numbers separated by spaces",
            ) from None
    if not found:
        raise InputError("the prompt is empty", place=place, help="remove the line")
    return found


def _written(tokenizer: Prompts | None, one: Continuation) -> str:
    if tokenizer is None:
        return " ".join(map(str, one.tokens))
    return tokenizer.decode(one.tokens)


def _record(tokenizer: Prompts | None, one: Continuation) -> dict[str, Any]:
    record = {
        "log_probability": one.log_probability,
        "finished": one.finished,
        "ids": one.tokens,
    }
    if tokenizer is None:
        return record
    return {
        "text": tokenizer.decode(one.tokens),
        "tokens": tokenizer.pieces(one.tokens),
        **record,
    }


def _write_plain(
    out: io.TextIOWrapper, tokenizer: Prompts | None, found: list[Continuation]
) -> None:
    """Write one line per continuation, preceded by its log probability if there are several."""
    for one in found:
        text = _written(tokenizer, one).replace("\n", " ")
        out.write(f"{one.log_probability:.4f}\t{text}\n" if len(found) > 1 else f"{text}\n")
