"""Signatures that depend on types: the ports of a block for the types of its wires."""

from __future__ import annotations

from dataclasses import replace

from ...specs.findings import pointer
from ..ir.block_type import BlockType, MismatchError, Signature
from ..ir.value_type import SIZED, UNKNOWN, ValueType, is_known
from .records import Checker, StandIn
from .wiring import Given, Reads


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
            wire = wires_at + pointer(error.port) if error.port else at + pointer("params")
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
