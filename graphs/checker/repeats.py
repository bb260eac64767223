"""Repeats: check that the copies of a template in sequence fit together.

A carried value leaves one copy and enters the next, so its type must not change.  A collected
value is stacked along a new first axis.  A copy that uses another template must take the same
inputs and return the same types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...specs import form
from ...specs.findings import did_you_mean, pointer, respelled
from ...specs.text.edits import Fix, replacing
from ...specs.wording import converted
from ..ir.graph import RepeatNode, Scope
from ..ir.value_type import ValueType
from .limits import MOST_COPIES, copies
from .params import MISSING
from .ports import Checker


def read_count(checker: Checker, node: form.RepeatNode, at: str) -> Any:
    """Return the number of copies of a repeat, or `MISSING` if it is wrong and reported."""
    here = at + pointer("repeat")
    count = checker.values.resolve(node.repeat, here)
    if count is MISSING or copies(count) is not None:
        return count
    if isinstance(count, str):
        checker.values.read.add(count)  # most likely meant with a `=`
    where = checker.values.blame(node.repeat, here)
    if where is not None:
        checker.report(
            code="P05",
            at=where,
            problem=f"'repeat' is {json.dumps(count, default=str)},"
            f" not a whole number from 1 to {MOST_COPIES:,}",
            evidence=(f"read at {here}",),
            help="write the number of copies, such as 6 or '=layers'",
            fix=_written_count(checker, count, where),
        )
    return MISSING


def _written_count(checker: Checker, count: Any, at: str) -> Fix | None:
    """Return the fix of a number of copies that was written as text, or without a `=`."""
    if isinstance(count, str) and count in checker.values.written:
        return replacing(at, f"={count}", certain=True)
    return converted(at, "int", count)


def fits_count(checker: Checker, node: form.RepeatNode, index: int, count: Any, at: str) -> bool:
    """Return whether a repeat has a separate copy with a number, and report it if not."""
    if node.share:
        checker.report(
            code="P07",
            at=at,
            problem=f"copy {index} cannot use another template: all copies share their weights",
            help="remove 'share', or patch every copy",
        )
        return False
    if count is not MISSING and index >= count:
        checker.report(
            code="P07",
            at=at,
            problem=f"there is no copy {index}: the copies are 0 to {count - 1}",
            evidence=(f"repeat {count}  at {at.rpartition('/instead/')[0]}/repeat",),
            help="name an existing copy",
        )
        return False
    return True


def fit_repeat(
    checker: Checker,
    key: str,
    node: form.RepeatNode,
    count: int,
    body: Scope,
    others: Mapping[int, Scope],
    at: str,
) -> RepeatNode | None:
    """Return the repeat if its copies fit together, and report where they do not.

    Args:
        checker: the state that the scopes share.
        key: the node's name.
        node: the repeat as written.
        count: number of copies.
        body: the inside of its template.
        others: the insides of copies that use another template, by number.
        at: JSON Pointer of the node.
    """
    sound = check_outputs(checker, node, body, at)
    types = body.gives()
    for index, other in others.items():
        where = at + pointer("instead", index)
        sound = _returns_same(checker, node, types, other, where) and sound
    if not sound:
        return None
    if len(others) == count:
        body = others[0]
    others = {index: other for index, other in others.items() if other is not body}
    outputs = {port: types[port] for port in types if port in node.carry}
    for port in node.collect:
        type_ = types[port]
        outputs[port] = ValueType(type_.kind, (count, *type_.axes), type_.size)
    return RepeatNode(
        name=key,
        at=at,
        wires=node.in_,
        outputs=outputs,
        body=body,
        repeat=count,
        carry=node.carry,
        collect=node.collect,
        share=node.share,
        instead=others,
    )


def check_outputs(checker: Checker, node: form.RepeatNode, body: Scope | None, at: str) -> bool:
    """Return whether a repeat's outputs are valid, and report those that are not.

    Args:
        checker: the state that the scopes share.
        node: the repeat as written.
        body: the inside of its template; None if a mistake in it leaves the types unknown.
        at: JSON Pointer of the node.
    """
    template = checker.templates.get(node.block)
    if template is None or node.block in checker.inside:
        return False
    ok = _carries(checker, node, body, template.outputs, at)
    return _collects(checker, node, template.outputs, at) and ok


def _carries(
    checker: Checker,
    node: form.RepeatNode,
    body: Scope | None,
    outputs: Mapping[str, str],
    at: str,
) -> bool:
    """Return whether the carried ports are valid, and report those that are not."""
    name, ok = node.block, True
    types = body.gives() if body is not None else {}
    for index, port in enumerate(node.carry):
        here = at + pointer("carry", index)
        if port not in outputs or port not in node.in_:
            side = "an output" if port not in outputs else "a wired input"
            checker.report(
                code="N03",
                at=here,
                problem=f"carry '{port}' is not {side} of '{name}'",
                help=did_you_mean(port, outputs if port not in outputs else node.in_),
                fix=respelled(here, port, set(outputs) - {*node.carry}),
            )
            ok = False
        elif body is not None and types[port] != body.inputs[port]:
            checker.report(
                code="T05",
                at=here,
                problem=f"carry '{port}' changes its type from copy to copy",
                evidence=(
                    f"enters {body.inputs[port]}  as input '{port}' of '{name}'",
                    f"leaves {types[port]}  as output '{port}', by {body.outputs[port]}",
                ),
                help=f"make '{name}' return the type that it takes",
            )
            ok = False
    if not node.carry and not node.collect:
        checker.report(
            code="W10",
            at=at,
            problem="the repeat has no outputs: both 'carry' and 'collect' are empty",
            help="name an output of its template in 'carry' or 'collect'",
        )
        ok = False
    return ok


def _collects(checker: Checker, node: form.RepeatNode, outputs: Mapping[str, str], at: str) -> bool:
    """Return whether the collected ports are valid, and report those that are not."""
    ok = True
    for index, port in enumerate(node.collect):
        here = at + pointer("collect", index)
        if port not in outputs:
            checker.report(
                code="N03",
                at=here,
                problem=f"collect '{port}' is not an output of '{node.block}'",
                help=did_you_mean(port, outputs),
                fix=respelled(here, port, set(outputs) - {*node.carry, *node.collect}),
            )
            ok = False
        elif port in node.carry:
            checker.report(
                code="W10",
                at=here,
                problem=f"'{port}' is both carried and collected, so it would have two values",
                help=f"give '{node.block}' a second output with the same value, and collect that",
            )
            ok = False
    return ok


def _returns_same(
    checker: Checker, node: form.RepeatNode, types: Mapping[str, ValueType], other: Scope, at: str
) -> bool:
    """Return whether a copy's own template has the output types of the other copies."""
    given, ok = other.gives(), True
    for port in (*node.carry, *node.collect):
        if port in types and given.get(port) != types[port]:
            leaves = f"given  {given[port]}" if port in given else f"'{other.name}' has no '{port}'"
            checker.report(
                code="T07",
                at=at,
                problem=f"output '{port}' of this copy differs from that of the other copies",
                evidence=(leaves, f"wanted {types[port]}  as output '{port}' of '{node.block}'"),
                help=f"make '{other.name}' return the types of '{node.block}'",
            )
            ok = False
    return ok
