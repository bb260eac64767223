"""Signatures: the ports of a block whose params are partly guesses, and for types of wires."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ...specs.findings import pointer
from ..ir.block_type import BlockType, MismatchError, Port, Signature
from ..ir.value_type import SIZED, UNKNOWN, ValueType, is_known
from .block_params import named_param
from .records import Checker, StandIn
from .wiring import Given, Reads


def common_signature(block: BlockType, params: StandIn, wired: frozenset[str]) -> Signature:
    """Return what the signatures for all guesses have in common.

    A port that only some guesses have is optional; an axis that depends on the guess is unknown.
    """
    first = block.signature(params.params, wired)
    if not params.doubtful:
        return first
    others = [block.signature(other, wired) for other in params.others]
    same = {
        name: kind
        for name, kind in first.behavior.items()
        if params.complete and all(other.behavior.get(name) == kind for other in others)
    }
    outputs = tuple(
        port
        for port in _common_ports(first, others, lambda signature: signature.outputs)
        if all(any(port.name == candidate.name for candidate in other.outputs) for other in others)
    )
    return replace(
        first,
        inputs=_common_ports(first, others, lambda signature: signature.inputs),
        outputs=outputs,
        behavior=same,
    )


def _common_ports(
    first: Signature, others: list[Signature], side: Callable[[Signature], tuple[Port, ...]]
) -> tuple[Port, ...]:
    ports = {port.name: port for port in side(first)}
    for other in others:
        other_ports = {port.name: port for port in side(other)}
        for name in ports.keys() | other_ports.keys():
            if ports.get(name) is other_ports.get(name):
                continue  # `port` is cached, so this is the rule
            if name in ports and name in other_ports:
                optional = ports[name].optional or other_ports[name].optional
                type_ = _common_type(ports[name].type, other_ports[name].type)
                ports[name] = replace(ports[name], type=type_, optional=optional)
            else:
                ports[name] = replace(ports.get(name) or other_ports[name], optional=True)
    return tuple(ports.values())


def _common_type(first: ValueType, other: ValueType) -> ValueType:
    if first == other:
        return first
    axes: tuple[int | str, ...] = ("...",)
    if len(first.axes) == len(other.axes):
        pairs = zip(first.axes, other.axes, strict=True)
        axes = tuple(a if a == b else UNKNOWN for a, b in pairs)
    return ValueType(first.kind, axes, first.size if first.size == other.size else UNKNOWN)


def typed_signature(
    checker: Checker,
    block: BlockType,
    standin: StandIn,
    signature: Signature,
    reads: Reads,
    at: str,
    wires_at: str,
) -> Signature:
    """Return the signature for the types of the wires; one that fits any if they are mistakes.

    Args:
        checker: the state that the scopes share.
        block: the block.
        standin: its params.
        signature: its ports, as far as they do not depend on types.
        reads: port to the value that it reads.
        at: JSON Pointer of the use of the block.
        wires_at: JSON Pointer of the wires, which belong to the node.
    """
    types = {
        port_.name: read.type
        for port_ in signature.inputs
        if isinstance(read := reads.get(port_.name), Given) and not read.guessed
    }
    wired = {port_.name for port_ in signature.inputs if not port_.optional or port_.name in reads}
    complete = all(is_known(type_) for type_ in types.values())
    if block.typed and complete and not standin.doubtful and types.keys() == wired:
        try:
            return block.typed(standin.params, types)
        except MismatchError as error:
            checker.doubts.misfits += 1
            read = reads.get(error.port)
            params = standin.params.model_dump(exclude_unset=True)
            # A message may use the name of a param as a word: those with their values come first.
            words = re.findall(r"-?\w+", error.problem)
            by_value = sorted(params, key=lambda name: str(params[name]) not in words)
            names = named_param(error.problem, by_value)
            wire = wires_at + pointer(error.port) if error.port else at + pointer("params", *names)
            checker.findings.report(
                code=error.code,
                at=read.slot if isinstance(read, Given) and read.slot else wire,
                problem=f"{block.key}: {error.problem}",
                evidence=tuple(
                    f"given  {read.type}  by {read.name}, port {name}"
                    for name, read in reads.items()
                    if isinstance(read, Given)
                ),
                help=error.help,
            )
    inputs = tuple(replace(p, type=types[p.name]) for p in signature.inputs if p.name in types)
    inputs += tuple(p for p in signature.inputs if p.name not in types)
    # Most blocks return values of the kind that they read.
    kinds = {read.type.kind for read in reads.values() if isinstance(read, Given)}
    kind = kinds.pop() if len(kinds) == 1 else "f"
    unknown = ValueType(kind, ("...",), UNKNOWN if kind in SIZED else None)
    outputs = tuple(replace(port_, type=unknown) for port_ in signature.outputs)
    return replace(signature, inputs=inputs, outputs=outputs)
