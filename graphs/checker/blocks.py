"""Parts: type one use of a registered block, and the blocks in its slots."""

from __future__ import annotations

from collections.abc import Mapping

from ...specs.expressions import is_expression, words_in
from ...specs.findings import did_you_mean, pointer, renamed
from ...specs.form import Use
from ..ir.block_type import BlockType, Signature, Slot
from ..ir.dims import names_of
from ..ir.graph import Filling, Part, TemplatePart
from ..ir.value_type import Bound, Misfit, ValueType, fit, free_names, substitute
from .block_params import read_use, refuse_params, template_named, validated
from .idle_params import note_params
from .ports import (
    Checker,
    Given,
    NoOutput,
    Reads,
    bind_ports,
    fit_ports,
    report_misfit,
    report_no_output,
    report_unwired,
)


def infer_part(
    checker: Checker,
    use: Use,
    given: Reads,
    at: str,
    wires_at: str,
    passed: frozenset[str] = frozenset(),
) -> Part | None:
    """Type one use of a registered block, and the blocks in its slots.

    Args:
        checker: the state that the scopes share.
        use: the use as written.
        given: port to the value that it reads.
        at: JSON Pointer of the use.
        wires_at: JSON Pointer of the wires, which belong to the node.
        passed: wires that another block of the node takes, which are not unknown here.

    Returns:
        The part; None if something is wrong with it, which is reported.
    """
    written = read_use(checker, use, at)
    params = validated(checker, written, at) if written else None
    if written is None or params is None:
        _look_into(checker, use, at)
        return None
    block = written.block
    signature = block.signature(params, frozenset(given))
    known = bind_ports(signature.inputs, given, signature.same)
    checker.outputs_of[at] = {
        port_.name: substitute(port_.type, known)
        if free_names(port_.type) <= known.keys()
        else None
        for port_ in signature.outputs
    }
    own = {port_.name for port_ in signature.inputs}
    note_params(checker, written, params, own & given.keys())
    inner = {name: read for name, read in given.items() if name not in own}
    mine = frozenset(inner) if signature.slots else passed
    bound = fit_ports(
        checker, list(signature.inputs), given, signature.same, block.key, wires_at, {}, mine
    )
    several = frozenset(inner) if len(signature.slots) > 1 else passed
    fill = _infer_fill(checker, use, block, signature.slots, bound, inner, at, wires_at, several)
    if len(signature.slots) > 1 and fill is not None:
        fill = _all_taken(checker, block, fill, inner, wires_at, passed)
    report_unwired(checker, signature.inputs, given, block.key, wires_at.removesuffix("/in"))
    if bound is None:
        return None
    sizes = _widths(signature, bound)
    try:
        arguments = block.arguments(params, sizes)
        block.weights(arguments)
    except KeyError as error:
        _report_unsized(checker, block, str(error.args[0]), bound, wires_at)
        return None
    except ValueError as error:
        _report_clash(checker, use, block, error, at)
        return None
    if fill is None:
        return None
    names = set().union(*(free_names(port_.type) for port_ in signature.inputs))
    types = {port_.name: substitute(port_.type, bound) for port_ in signature.outputs}
    return Part(
        block=block,
        params=params,
        arguments=arguments,
        signature=signature,
        inputs={
            name: read.type
            for name, read in given.items()
            if isinstance(read, Given)
            and (name in own or name not in passed or any(name in _taken(p) for p in fill.values()))
        },
        outputs=types,
        axes={name: bound[name] for name in names if name in bound},
        fill=fill,
    )


def _widths(signature: Signature, bound: Bound) -> dict[str, int]:
    """Return the sizes that weights may depend on: widths of vectors, and sizes of kinds.

    The number of vectors is not such a size, even if it is constant, as for patches.
    """
    names = set[str]()
    for port_ in signature.inputs:
        last = port_.type.axes[-1:] if port_.type.kind == "f" else ()
        for part in (*last, port_.type.size):
            names |= names_of(part) if part is not None else frozenset()
    return {name: size for name, size in bound.items() if name in names and isinstance(size, int)}


def _report_clash(checker: Checker, use: Use, block: BlockType, error: ValueError, at: str) -> None:
    """Report params that do not fit the sizes, unless a requirement on them was reported."""
    reads = {word for text in use.params.values() if is_expression(text) for word in words_in(text)}
    if reads & checker.values.doubtful:
        return
    if reads:
        if (block.key, str(error)) in checker.clashes:
            return
        checker.clashes.add((block.key, str(error)))
    problem, *help_ = error.args or ("the params do not fit the sizes",)
    checker.report(
        code="P02",
        at=at + pointer("params") if use.params else at,
        problem=f"{block.key}: {problem}",
        help=str(help_[0]) if help_ else "",
    )


def _report_unsized(checker: Checker, block: BlockType, name: str, bound: Bound, at: str) -> None:
    """Report a graph axis where a block needs a number; unbound names are not reported."""
    axis = bound.get(name)
    if isinstance(axis, str) and axis[:1].isupper():
        checker.report(
            code="T03",
            at=at,
            problem=f"axis '{name}' of {block.key} is {axis}, and must be a number",
            help="wire a value whose last axes are numbers",
        )


def _look_into(checker: Checker, use: Use, at: str) -> None:
    """Report errors in the slots of a use that cannot itself be typed."""
    for slot, inner in use.fill.items():
        here = at + pointer("fill", slot)
        written = read_use(checker, inner, here)
        if written is not None:
            validated(checker, written, here)
        _look_into(checker, inner, here)


def _infer_fill(  # noqa: PLR0913, PLR0917 - the local state of `infer_part`
    checker: Checker,
    use: Use,
    block: BlockType,
    slots: tuple[Slot, ...],
    bound: Bound | None,
    inner: Reads,
    at: str,
    wires_at: str,
    passed: frozenset[str],
) -> dict[str, Filling] | None:
    """Type the blocks in the slots of a use; None if one cannot be typed.

    The wires in `passed` may belong to another slot, so they need no port here.
    """
    names = [slot.name for slot in slots]
    unknown = [name for name in use.fill if name not in names]
    for name in unknown:
        checker.report(
            code="W05",
            at=at + pointer("fill", name),
            problem=f"{block.key} has no slot '{name}'",
            help=did_you_mean(name, names) or f"remove 'fill': {block.key} has no slots",
            fix=renamed(at + pointer("fill", name), name, names, use.fill),
        )
    if unknown:
        _look_into(checker, use, at)
        return None
    fill: dict[str, Filling] = {}
    for slot in slots:
        here = at + pointer("fill", slot.name)
        if slot.name not in use.fill:
            checker.report(
                code="W05",
                at=at,
                problem=f"slot '{slot.name}' of {block.key} is empty",
                evidence=(f"wanted {slot.input.type} -> {slot.output.type}",),
                help=f'add "fill": {{"{slot.name}": {{"use": ...}}}}',
            )
            continue
        entry = None
        if bound is not None:
            entry = Given(substitute(slot.input.type, bound), f"slot {slot.name} of {block.key}")
        reads = {slot.input.name: entry, **inner}
        part = _infer_filling(checker, use.fill[slot.name], reads, here, wires_at, passed)
        if part is None or bound is None:
            continue
        if slot.output.name not in part.outputs:
            known = tuple(part.outputs)
            report_no_output(checker, NoOutput(part.key, slot.output.name, known), here)
            continue
        back = fit(slot.output.type, part.outputs[slot.output.name], bound, {})
        if isinstance(back, Misfit):
            given = Given(part.outputs[slot.output.name], f"{part.key}, port {slot.output.name}")
            report_misfit(checker, back, slot.output, given, f"{block.key}, slot {slot.name}", here)
            continue
        fill[slot.name] = part
    return fill if len(fill) == len(slots) == len(use.fill) else None


def _taken(part: Filling) -> frozenset[str]:
    """Return the ports of a block or template, including those of the blocks in its slots."""
    if isinstance(part, TemplatePart):
        return frozenset(part.body.inputs)
    own = {port_.name for port_ in part.signature.inputs}
    return frozenset(own).union(*map(_taken, part.fill.values()))


def _all_taken(
    checker: Checker,
    block: BlockType,
    fill: dict[str, Filling],
    inner: Reads,
    wires_at: str,
    passed: frozenset[str],
) -> dict[str, Filling] | None:
    """Return the slots, or None after reporting wires for which no slot has a port."""
    known = frozenset[str]().union(*map(_taken, fill.values()))
    unknown = [name for name in inner if name not in known and name not in passed]
    for name in unknown:
        checker.unknown_wires.add(wires_at + pointer(name))
        checker.report(
            code="N03",
            at=wires_at + pointer(name),
            problem=f"no slot of {block.key} has a port '{name}'",
            help=did_you_mean(name, sorted(known)),
            fix=renamed(wires_at + pointer(name), name, known, inner),
        )
    return None if unknown else fill


def _infer_filling(
    checker: Checker, use: Use, given: Reads, at: str, wires_at: str, passed: frozenset[str]
) -> Filling | None:
    """Type the registered block or the template in a slot."""
    name = template_named(checker, use)
    if not name:
        part = infer_part(checker, use, given, at, wires_at, passed)
        if part is None or _has_one_output(checker, part.key, part.outputs, at):
            return part
        return None
    refuse_params(checker, use, name, at)
    ports = checker.templates[name].inputs
    given = {key: read for key, read in given.items() if key in ports or key not in passed}
    body = checker.infer_template(checker, name, given, wires_at.removesuffix("/in"))
    if body is None:
        return None
    types = body.gives()
    if not _has_one_output(checker, f"template '{name}'", types, at):
        return None
    inputs = {port_: read.type for port_, read in given.items() if isinstance(read, Given)}
    return TemplatePart(body=body, inputs=inputs)


def _has_one_output(checker: Checker, what: str, types: Mapping[str, ValueType], at: str) -> bool:
    """Return whether a block in a slot has at most one output, and report it if it has more."""
    if len(types) <= 1:
        return True
    help_ = "remove outputs until one is left, or use the template as a node"
    if not what.startswith("template"):
        help_ = f"use {what} as a node, and write out the path around it: dropout@1, add@1, a norm"
    checker.report(
        code="W11",
        at=at,
        problem=f"{what} has {len(types)} outputs, and a slot takes one",
        evidence=(f"outputs {', '.join(types)}",),
        help=help_,
    )
    return False
