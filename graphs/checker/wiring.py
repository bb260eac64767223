"""Wires: match values with the ports of a block, a template or a model.

Reports wires to unknown ports, ports without wires, and types that do not fit.  Types are compared
with the signature that all guesses of unclear params share, and with one position of an axis where
a slot applies a block to one after another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...specs.findings import did_you_mean, nearest, pointer, renamed, respelled
from ...specs.text_edits import replacing
from ..ir.block_type import BlockType, MismatchError, Port, Signature
from ..ir.graph import BlockNode, Node, Part, last_result
from ..ir.value_type import (
    SIZED,
    UNKNOWN,
    Axis,
    Bound,
    Misfit,
    ValueType,
    fit,
    free_names,
    is_arithmetic,
    is_known,
    names_of,
    terms_of,
)
from .block_params import named_param
from .records import CheckContext, Checker, Doubts, FindingSet, StandIn

NO_ADAPTER = {
    ("bias", "mask"): "wire the mask from which the bias was made",
    ("mask", "bias"): "wire it to a port of kind mask, or add where(mask, 0, -inf) to a bias",
    ("f", "mask"): "a mask cannot be made from activations: wire a mask input",
}
"""(given kind, wanted kind) to the help where no block converts one into the other."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value on a wire: its type, and its description in findings."""

    type: ValueType
    name: str
    guessed: bool = False
    """Whether the wire has a mistake, and this is only the value that it most likely meant."""
    slot: str = ""
    """JSON Pointer of the block in a slot that receives the value without a wire."""


@dataclass(frozen=True, slots=True)
class NoOutput:
    """A wire to an output that its node does not have."""

    node: str
    port: str
    outputs: tuple[str, ...]
    """The outputs that the node has."""
    nearest: Given | None = None
    """The output that was most likely meant."""


Reads = Mapping[str, Given | NoOutput | None]
"""What each port reads: a value, None if its type is unknown, or an output that does not exist."""


def report_no_output(findings: FindingSet, missing: NoOutput, at: str) -> None:
    """Report a wire to an output that its node does not have."""
    values = [f"{missing.node}.{port_}" for port_ in missing.outputs]
    near = nearest(missing.port, missing.outputs)
    findings.report(
        code="N03",
        at=at,
        problem=f"node '{missing.node}' has no output '{missing.port}'",
        help=f"did you mean '{missing.node}.{near}'?" if near else did_you_mean("", values),
        fix=replacing(at, values[0], certain=True)
        if len(values) == 1
        else respelled(at, missing.port, missing.outputs, f"{missing.node}.{{}}"),
    )


def as_meant(ports: Iterable[Port], inputs: Reads, *, slots: bool = False) -> Reads:
    """Return what each port reads if misspelled ports mean the most similar ones.

    Args:
        ports: the ports of a block or template.
        inputs: port, as written, to the value that it reads.
        slots: whether the block passes unknown wires on to the blocks in its slots.
    """
    ports = tuple(ports)
    port_names = {port_.name for port_ in ports}
    free = [port_.name for port_ in ports if port_.name not in inputs]
    needed = [port_.name for port_ in ports if port_.name in free and not port_.optional]
    corrected: dict[str, Given | NoOutput | None] = {}
    for name, read in inputs.items():
        if name in port_names or not free:
            continue
        near = nearest(name, needed if slots else free)
        near = near or (needed[0] if len(needed) == 1 and not slots else "")
        if near and near not in corrected:
            guess = read.nearest if isinstance(read, NoOutput) else read
            corrected[near] = None if guess is None else replace(guess, guessed=True)
    return {**inputs, **corrected} if corrected else inputs


def report_unknown_ports(
    findings: FindingSet,
    doubts: Doubts,
    names: Iterable[str],
    inputs: Reads,
    block: str,
    at: str,
    passed: frozenset[str] = frozenset(),
) -> None:
    """Report wires to ports that do not exist, and wires to outputs that do not exist.

    Args:
        findings: receives what is wrong.
        doubts: what mistakes leave unknown.
        names: the names of the ports.
        inputs: port to the value that it reads, as written.
        block: the block's name, for messages.
        at: JSON Pointer of the wires.
        passed: wires that another block of the node takes, which are not unknown here.
    """
    names = {*names}
    for name, read in inputs.items():
        if name not in names and name not in passed:
            doubts.unknown_wires.add(at + pointer(name))
            findings.report(
                code="N03",
                at=at + pointer(name),
                problem=f"{block} has no port '{name}'",
                help=did_you_mean(name, names),
                fix=renamed(at + pointer(name), name, names),
            )
        if isinstance(read, NoOutput):
            report_no_output(findings, read, at + pointer(name))


@dataclass(frozen=True, slots=True)
class Fitted:
    """The bindings of the ports' names by the wires that fit."""

    bound: Bound
    support: Mapping[str, int]
    """Name to the number of wires that it occurs in."""
    disputed: frozenset[str] = frozenset()
    """The names in the types of ports whose wires do not fit."""

    def certain(self, misfits: int) -> Bound:
        """Return the bindings that hold although some wires of the node do not fit.

        It is not known which wire is wrong then, so an axis that only one wire gives is unknown,
        and so is a size that two wires dispute.
        """
        if not misfits:
            return self.bound
        certain = dict(self.bound)
        for name, axis in self.bound.items():
            sized = isinstance(axis, int) and name not in self.disputed
            if self.support.get(name, 0) <= 1 and not sized:
                certain[name] = ("...",) if name == "..." else UNKNOWN
        return certain


def fit_ports(
    checker: Checker,
    ports: Iterable[Port],
    inputs: Reads,
    same: Mapping[str, str],
    block: str,
    at: str,
) -> Fitted:
    """Match every wire of a node against its ports, and report those that do not fit.

    Args:
        checker: the state that the scopes share.
        ports: the ports of the block or template.
        inputs: port to the value that it reads.
        same: axis names that default to another.
        block: the block's name, for messages.
        at: JSON Pointer of the wires.
    """
    bound: Bound = {}
    origin: dict[str, str] = {}
    support: dict[str, int] = {}
    disputed = set[str]()
    reported = set[str]()
    reads = [(port_, _value(inputs.get(port_.name))) for port_ in ports]
    for port_, read in sorted(reads, key=lambda pair: pair[1] is not None and pair[1].guessed):
        if read is None:
            continue
        fitted = fit(port_.type, read.type, bound, origin)
        if isinstance(fitted, Misfit):
            same_axis = fitted.problem.removesuffix(f"'{port_.name}'")
            if not read.guessed and same_axis not in reported:
                # Two wires that disagree alike with a third are one mistake.
                reported.add(same_axis)
                location = read.slot or at + pointer(port_.name)
                report_misfit(checker, fitted, port_, read, block, location)
                disputed |= free_names(port_.type)
            continue
        for name in free_names(port_.type):
            support[name] = support.get(name, 0) + 1
        for name in fitted.keys() - bound.keys():
            origin[name] = port_.name
        bound = fitted
        for alias, target in same.items():
            if target in bound and alias not in bound:
                bound[alias] = bound[target]
                origin[alias] = origin.get(target, target)
    return Fitted(bound, support, frozenset(disputed))


def _value(read: Given | NoOutput | None) -> Given | None:
    """Return the value that a port reads, or most likely was meant to read."""
    return read.nearest if isinstance(read, NoOutput) else read


def report_unwired(
    checker: Checker, ports: Iterable[Port], inputs: Reads, block: str, at: str
) -> None:
    """Report the required ports of a node that are not wired.

    A port is not reported if a wire to an unknown port most likely meant it.

    Args:
        checker: the state that the scopes share.
        ports: the ports of the block or template.
        inputs: port to the value that it reads.
        block: the block's name, for messages.
        at: JSON Pointer of the node.
    """
    ports = tuple(ports)
    wires = at + pointer("in")
    misspelled = [name for name in inputs if wires + pointer(name) in checker.doubts.unknown_wires]
    likely = {nearest(name, [port_.name for port_ in ports]) for name in misspelled}
    for port_ in ports:
        if port_.optional or port_.name in inputs or port_.name in likely or "" in likely:
            continue
        checker.doubts.unwired.append(port_.type)
        location = wires + pointer(port_.name)
        if location in checker.doubts.absent_wires:
            name = checker.doubts.absent_wires[location]
            checker.findings.report(
                code="W01",
                at=location,
                problem=f"port '{port_.name}' of {block} reads input '{name}', which is not wired",
                evidence=(
                    f"wanted {port_.type}",
                    f"template '{checker.memo.inside[-1]}' makes it optional",
                ),
                help=f"wire '{name}' wherever the template is used, and remove its '?'",
            )
            continue
        checker.findings.report(
            code="W01",
            at=at,
            problem=f"port '{port_.name}' of {block} is not wired",
            evidence=(f"wanted {port_.type}",),
            help=f"add '{port_.name}' to 'in'",
        )


def report_misfit(
    checker: Checker,
    misfit: Misfit,
    port_: Port,
    read: Given,
    block: str,
    at: str,
    way_out: str = "",
) -> None:
    """Report a wire that does not fit, with both types and how to fix it.

    Args:
        checker: the state that the scopes share.
        misfit: how the types differ.
        port_: the port.
        read: the value.
        block: the block's name, for messages.
        at: JSON Pointer of the wire, or of the block in a slot.
        way_out: how to fix it; by default a way that follows from the types.
    """
    checker.doubts.unwired.append(port_.type)
    checker.doubts.misfits += 1
    help_ = way_out or _adapter(checker.context, read.type.kind, port_.type.kind)
    if read.slot and not way_out:
        help_ = f"fill the slot with a block for {read.type}, or with a template around this one"
    elif not help_ and misfit.code == "T03" and (multiple := _multiple(port_.type, read.type)):
        help_ = f"give the input an axis such as {multiple}, a multiple to which its column pads"
    elif not help_ and misfit.code == "T03" and (free := _freed(port_.type, read.type, block)):
        help_ = f"write {free} in the types of {block}: words fit any axes"
    elif not help_ and port_.optional:
        help_ = f"remove '{port_.name}', or wire a value of the wanted type"
    elif not help_ and misfit.code == "T03" and read.type.kind == "f":
        adapter = _adapting(checker.context, "f", "f") if misfit.width else ""
        help_ = "wire a value of the wanted type"
        help_ += f", or put {adapter} on this wire to change a width" if adapter else ""
    checker.findings.report(
        code=misfit.code,
        at=at,
        problem=f"{misfit.problem} at port '{port_.name}'",
        evidence=(
            f"given  {read.type}  by {read.name}",
            f"wanted {misfit.detail}  by {block}, port {port_.name}",
        ),
        help=help_ or f"wire a value of kind {port_.type.kind}",
    )


def _multiple(port_type: ValueType, type_: ValueType) -> str:
    """Return a multiple of an axis of which a port takes only multiples; empty if there is none."""
    for want, axis in zip(port_type.axes[::-1], type_.axes[::-1], strict=False):
        factors = terms_of(want) if is_arithmetic(want) else {}
        (times,) = factors.values() if len(factors) == 1 else (1,)
        if times > 1 and isinstance(axis, str) and axis.isidentifier():
            return f"{times}*{axis}"
    return ""


def _freed(port_type: ValueType, type_: ValueType, template: str) -> str:
    """Return which axes of the graph a template's input should have as words.

    It is empty for a block, and where a value has other axes than some of them with more positions.
    """
    if "@" in template or len(port_type.axes) != len(type_.axes):
        return ""
    pairs = zip(port_type.axes, type_.axes, strict=True)
    names = {str(want): axis for want, axis in pairs if want != axis}
    if not all(name[:1].isupper() and name in names_of(axis) for name, axis in names.items()):
        return ""
    return " and ".join(f"{name.lower()} for {name}" for name in names)


def _adapter(context: CheckContext, source_kind: str, target_kind: str) -> str:
    """Return how to convert a value to the kind that the port takes; empty if unknown."""
    if (source_kind, target_kind) in NO_ADAPTER:
        return NO_ADAPTER[source_kind, target_kind]
    block = _adapting(context, source_kind, target_kind) if source_kind != target_kind else ""
    return f"put {block} on this wire" if block else ""


def _adapting(context: CheckContext, source_kind: str, target_kind: str) -> str:
    """Return the block that converts one kind into another, with an article; empty if none."""
    for block in context.registry:
        if block.adapts == (source_kind, target_kind):
            return f"{'an' if block.name[0] in 'aeiou' else 'a'} '{block.key}'"
    return ""


def with_read_outputs(nodes: Sequence[Node], outputs: Mapping[str, str]) -> list[Node]:
    """Return nodes of a scope, whose blocks compute only those optional outputs that are read.

    Nodes that apply one module compute the same.

    Args:
        nodes: the nodes.
        outputs: the outputs of the scope, and what they return.
    """
    read = {*outputs.values(), *(value for node in nodes for value in node.wires.values())}
    changed = list[Node]()
    for node in nodes:
        if isinstance(node, BlockNode) and _optional(node.part):
            same = [other.name for other in nodes if other.module == node.module]
            names = {n for n in _optional(node.part) if any(f"{o}.{n}" in read for o in same)}
            part = giving(node.part, frozenset(names))
            changed.append(replace(node, part=part, outputs=part.outputs))
        else:
            changed.append(node)
    return changed


def _optional(part: Part) -> list[str]:
    return [port.name for port in part.signature.outputs if port.optional]


@last_result
def giving(part: Part, names: frozenset[str]) -> Part:
    """Return a use of a block that computes only some of its optional outputs.

    Args:
        part: the use, with all of them.
        names: those that it computes.
    """
    if not _optional(part):
        return part
    outputs = tuple(
        replace(port, optional=False)
        for port in part.signature.outputs
        if not port.optional or port.name in names
    )
    returns = tuple(port.name for port in outputs if port.name in names)
    more = {"returns": returns} if returns else {}
    return replace(
        part,
        signature=replace(part.signature, outputs=outputs),
        outputs={port.name: part.outputs[port.name] for port in outputs},
        offers={name: part.outputs[name] for name in _optional(part) if name not in names},
        arguments={**part.arguments, **more},
    )


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


def at_one_position(
    checker: Checker, block: BlockType, axis: Axis | None, reads: Reads, wires_at: str
) -> Reads:
    """Return the wires that a slot passes on, at one position: there, the axis has the size 1.

    Wires without the axis stay as they are.

    Args:
        checker: the state that the scopes share.
        block: the block with the slot.
        axis: the axis of the positions; None if it is unknown.
        reads: port to the value that it reads.
        wires_at: JSON Pointer of the wires.
    """
    if isinstance(axis, int):
        checker.findings.report(
            code="T03",
            at=wires_at,
            problem=f"{block.key} goes through the positions of an axis, not {axis} fixed ones",
            help="wire values with a time axis, such as T",
        )
    if axis in (None, UNKNOWN) or isinstance(axis, int):
        return {
            name: replace(read, guessed=True) if isinstance(read, Given) else read
            for name, read in reads.items()
        }
    return {
        name: _at_one(checker, block, str(axis), read, wires_at + pointer(name))
        if isinstance(read, Given)
        else read
        for name, read in reads.items()
    }


def _at_one(checker: Checker, block: BlockType, axis: str, read: Given, at: str) -> Given:
    """Return a wire at one position of an axis, and report one whose positions are others."""
    axes = read.type.axes
    related = [other for other in axes if names_of(other) & names_of(axis)]
    if related not in ([], [axis]):
        texts = " and ".join(map(str, related))
        checker.doubts.misfits += 1
        checker.findings.report(
            code="T03",
            at=at,
            problem=f"{block.key} goes through {axis}, but {read.name} has {texts}",
            evidence=(f"given  {read.type}",),
            help=f"wire a value that has {axis} once, or not at all",
        )
        return replace(read, guessed=True)
    axes = tuple(1 if other == axis else other for other in axes)
    return replace(read, type=replace(read.type, axes=axes))
