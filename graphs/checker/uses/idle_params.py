"""Idle params: report params that a spec sets where they have no effect (P08)."""

from __future__ import annotations

import json
from collections.abc import Collection

from pydantic import BaseModel

from ....specs.expressions import is_expression, words_in
from ...ir.needs import Idle, Needs, idle_params
from ...ir.stand_ins import StandIn
from ..block_params import Written
from ..records import Checker, Context, Findings


def note_params(checker: Checker, written: Written, made: StandIn, wired: Collection[str]) -> None:
    """Note which params of one use of a block have an effect and which have none.

    A template is typed once for each combination of port types: a param has no effect only if
    it has none in any of them.

    Args:
        checker: the state that the scopes share.
        written: the use as written.
        made: its params, some of which may be guesses.
        wired: the ports of the block that are wired.
    """
    params = made.params
    idle = {each.param: each for each in idle_params(params, wired)}
    checker.doubts.doubts += bool(idle)
    for name in written.params:
        at = written.places[name]
        if (
            name not in idle
            or _doubtful(idle[name], made.doubtful)
            or _by_override(checker.context, written, idle[name])
        ):
            checker.findings.active_params.add(at)
        else:
            checker.findings.idle_params.setdefault(at, _fields(written, params, idle[name]))


def report_idle(findings: Findings) -> None:
    """Report the params that have no effect anywhere."""
    for at, fields in findings.idle_params.items():
        if at not in findings.active_params:
            findings.report(code="P08", at=at, **fields)


def _doubtful(idle: Idle, doubtful: Collection[str]) -> bool:
    """Return whether a param has no effect only because of a guess."""
    reads = {idle.param, idle.because.param if isinstance(idle.because, Needs) else idle.param}
    return not reads.isdisjoint(doubtful)


def _by_override(context: Context, written: Written, idle: Idle) -> bool:
    """Return whether only an override makes a param idle: the spec itself is then correct.

    A run or a study that sets `norm` to `none` need not reset the params of the norm.
    """
    if not isinstance(idle.because, Needs):
        return False
    return _overridden(context, written, idle.because.param) and not _overridden(
        context, written, idle.param
    )


def _overridden(context: Context, written: Written, name: str) -> bool:
    """Return whether the value of a param depends on an override."""
    text = written.texts.get(name, "")
    return is_expression(text) and bool(context.values.overriding(words_in(text)))


def _fields(written: Written, params: BaseModel, idle: Idle) -> dict[str, object]:
    """Return problem, evidence and help of a finding."""
    name, because, block = idle.param, idle.because, written.block.key
    default = type(params).model_fields[name].default
    if isinstance(because, Needs):
        state = f"'{because.param}' is {_json(getattr(params, because.param))}"
        options = " or ".join(map(_json, because.values)) or f"at least {because.least}"
        other = f"set '{because.param}' to {options}"
    else:
        state, other = f"port '{because.port}' is wired", f"do not wire '{because.port}'"
    return {
        "problem": f"param '{name}' of {block} has no effect while {state}",
        "evidence": (f"given  {_json(getattr(params, name))}", f"default {_json(default)}"),
        "help": f"remove '{name}', or {other}",
    }


def _json(value: object) -> str:
    return json.dumps(value, default=str)
