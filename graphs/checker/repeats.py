"""Repeats: check that the copies of a template in sequence fit together.

A carried value leaves one copy and enters the next, so its type must not change.  A collected
value is stacked along a new first axis.  A copy that uses another template must take the same
inputs and return the same types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...specs import form
from ...specs.findings import did_you_mean, pointer, respelled
from ...specs.text.copies import MOST_COPIES, is_number, number_of_copies, selected_copies
from ...specs.text.edits import Fix, replacing
from ...specs.wording import converted
from ..ir.dims import UNKNOWN
from ..ir.graph import RepeatNode, Scope
from ..ir.value_type import ValueType, same_type
from ..order import leading
from .records import MISSING, Checker, Context, Doubts, Findings


def read_count(context: Context, findings: Findings, node: form.RepeatNode, at: str) -> Any:
    """Return the number of copies of a repeat, or `MISSING` if it is wrong and reported."""
    here = at + pointer("repeat")
    count = context.values.resolve(node.repeat, here)
    if count is MISSING:
        return MISSING
    if (number := number_of_copies(count)) is not None:
        return number
    if isinstance(count, str):
        context.values.read.add(count)  # most likely meant with a `=`
    where = context.values.blame(node.repeat, here)
    if where is not None:
        findings.report(
            code="P05",
            at=where,
            problem=f"'repeat' is {json.dumps(count, default=str)},"
            f" not a whole number from 1 to {MOST_COPIES:,}",
            evidence=(f"read at {here}",),
            help="write the number of copies, such as 6 or '=layers'",
            fix=_written_count(context, count, where),
        )
    return MISSING


def _written_count(context: Context, count: Any, at: str) -> Fix | None:
    """Return the fix of a number of copies that was written as text, or without a `=`."""
    if isinstance(count, str) and count in context.values.written:
        return replacing(at, f"={count}", certain=True)
    return converted(at, "int", count)


def copies_selected(
    findings: Findings,
    node: form.RepeatNode,
    key: str,
    count: Any,
    taken: Mapping[int, str],
    at: str,
) -> Sequence[int]:
    """Return the separate copies that a key of `instead` selects, and report if it cannot.

    Args:
        findings: receives what is wrong.
        node: the repeat as written.
        key: a number or a slice.
        count: number of copies, or `MISSING`: then a slice selects none.
        taken: copy to the key that selects it already.
        at: JSON Pointer of the key.
    """
    if node.share:
        findings.report(
            code="P07",
            at=at,
            problem=f"copy {key} cannot use another template: all copies share their weights",
            help="remove 'share', or patch every copy",
        )
        return ()
    if count is MISSING:
        return (int(key),) if is_number(key) else ()
    found = selected_copies(key, count)
    evidence = (f"repeat {count}  at {at.rpartition('/instead/')[0]}/repeat",)
    if not found:
        findings.report(
            code="P07",
            at=at,
            problem=f"the slice '{key}' selects none of the {count} copies",
            evidence=evidence,
            help="write start:stop:step, such as '2::3' for the copies 2, 5, 8 and so on",
        )
    elif not 0 <= found[0] <= found[-1] < count:
        findings.report(
            code="P07",
            at=at,
            problem=f"there is no copy {key}: the copies are 0 to {count - 1}",
            evidence=evidence,
            help="name an existing copy",
        )
        return ()
    both = [index for index in found if index in taken]
    if both:
        findings.report(
            code="P07",
            at=at,
            problem=f"both '{taken[both[0]]}' and '{key}' select copy {both[0]}",
            evidence=evidence,
            help="change one of them, so that each copy has one template",
        )
    return [index for index in found if index not in taken]


def fit_repeat(
    checker: Checker,
    key: str,
    node: form.RepeatNode,
    count: Any,
    body: Scope,
    others: Mapping[int, Scope],
    taken: Mapping[int, str],
    at: str,
) -> RepeatNode:
    """Return the repeat, and report where its copies do not fit together.

    Args:
        checker: the state that the scopes share.
        key: the node's name.
        node: the repeat as written.
        count: number of copies, or `MISSING`.
        body: the inside of its template.
        others: the insides of copies that use another template, by number.
        taken: copy to the key of `instead` that selects it.
        at: JSON Pointer of the node.
    """
    check_outputs(checker, node, body, at)
    types = body.gives()
    for key_, other in {taken[index]: other for index, other in others.items()}.items():
        _check_same(
            checker.context, checker.findings, node, body, other, at + pointer("instead", key_)
        )
    if len(others) == count:
        body = others[0]
    others = {index: other for index, other in others.items() if other is not body}
    # A carried value has the type that enters, whatever leaves.
    enters = {**types, **body.inputs}
    outputs = {port: enters[port] for port in enters if port in node.carry}
    for port in node.collect:
        if outputs.pop(port, None) is None and port in types:
            type_, copies_ = types[port], UNKNOWN if count is MISSING else count
            outputs[port] = ValueType(type_.kind, (copies_, *type_.axes), type_.size)
    repeat = 1 if count is MISSING else count
    return RepeatNode(
        name=key,
        at=at,
        wires=leading(node.in_, body.inputs),
        outputs=outputs,
        body=body,
        repeat=repeat,
        carry=tuple(sorted(node.carry)),
        collect=tuple(sorted(node.collect)),
        share=node.share,
        instead={index: other for index, other in others.items() if index < repeat},
    )


def check_outputs(checker: Checker, node: form.RepeatNode, body: Scope | None, at: str) -> None:
    """Report outputs of a repeat that are not valid.

    Args:
        checker: the state that the scopes share.
        node: the repeat as written.
        body: the inside of its template; None if a mistake in it leaves the types unknown.
        at: JSON Pointer of the node.
    """
    template = checker.context.spec.blocks.get(node.block)
    if template is not None and node.block not in checker.memo.inside:
        _check_carry(checker.findings, checker.doubts, node, body, template.outputs, at)
        _check_collect(checker.findings, node, template.outputs, at)


def _check_carry(
    findings: Findings,
    doubts: Doubts,
    node: form.RepeatNode,
    body: Scope | None,
    outputs: Mapping[str, str],
    at: str,
) -> None:
    """Report carried ports that are not valid."""
    name = node.block
    types = body.gives() if body is not None else {}
    for index, port in enumerate(node.carry):
        here = at + pointer("carry", index)
        if port not in outputs or port not in node.in_:
            side = "an output" if port not in outputs else "a wired input"
            findings.report(
                code="N03",
                at=here,
                problem=f"carry '{port}' is not {side} of '{name}'",
                help=did_you_mean(port, outputs if port not in outputs else node.in_),
                fix=respelled(here, port, set(outputs) - {*node.carry}),
            )
        elif (
            body is not None
            and port in types
            and port in body.inputs
            and not same_type(types[port], body.inputs[port])
        ):
            doubts.crossed |= {name} if types[port].axes != body.inputs[port].axes else set()
            findings.report(
                code="T05",
                at=here,
                problem=f"carry '{port}' changes its type from copy to copy",
                evidence=(
                    f"enters {body.inputs[port]}  as input '{port}' of '{name}'",
                    f"leaves {types[port]}  as output '{port}', by {body.outputs[port]}",
                ),
                help=f"make '{name}' return the type that it takes",
            )
    if not node.carry and not node.collect:
        findings.report(
            code="W10",
            at=at,
            problem="the repeat has no outputs: both 'carry' and 'collect' are empty",
            help="name an output of its template in 'carry' or 'collect'",
        )


def _check_collect(
    findings: Findings, node: form.RepeatNode, outputs: Mapping[str, str], at: str
) -> None:
    """Report collected ports that are not valid."""
    for index, port in enumerate(node.collect):
        here = at + pointer("collect", index)
        if port not in outputs:
            findings.report(
                code="N03",
                at=here,
                problem=f"collect '{port}' is not an output of '{node.block}'",
                help=did_you_mean(port, outputs),
                fix=respelled(here, port, set(outputs) - {*node.carry, *node.collect}),
            )
        elif port in node.carry:
            findings.report(
                code="W10",
                at=here,
                problem=f"'{port}' is both carried and collected, so it would have two values",
                help=f"give '{node.block}' a second output with the same value, and collect that",
            )


def _check_same(
    context: Context, findings: Findings, node: form.RepeatNode, body: Scope, other: Scope, at: str
) -> None:
    """Report outputs in which a copy's own template differs from the other copies."""
    types, given = body.gives(), other.gives()
    for port in (*node.carry, *node.collect):
        unknown = port in context.spec.blocks[other.name].outputs and port not in given
        wanted = types.get(port) or (body.inputs.get(port) if port in node.carry else None)
        if wanted is None or unknown:
            continue
        if port not in given or not same_type(given[port], wanted):
            leaves = f"given  {given[port]}" if port in given else f"'{other.name}' has no '{port}'"
            findings.report(
                code="T07",
                at=at,
                problem=f"output '{port}' of this copy differs from that of the other copies",
                evidence=(leaves, f"wanted {wanted}  as output '{port}' of '{node.block}'"),
                help=f"make '{other.name}' return the types of '{node.block}'",
            )
