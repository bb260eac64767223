"""Blocks: type one use of a registered block, and the blocks in its slots.

Nodes that are alike are typed once, also from one check to the next: while a spec is edited, nearly
all nodes stay as they are.  A part does not depend on the name of its node, so nodes with the same
block, params and types of wires have the same part.  Only parts without mistakes are remembered:
everything that is reported is found anew in each check.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...specs.expressions import ExpressionError, is_expression, names_in, words_in
from ...specs.findings import did_you_mean, nearest, pointer, renamed
from ...specs.form import Use
from ..ir.block_type import (
    BlockType,
    Signature,
    Slot,
    no_weights,
    width_names,
    widths,
)
from ..ir.graph import Filling, Part, TemplatePart, leading
from ..ir.lora import without_lora
from ..ir.step_axis import stored_ports
from ..ir.value_type import (
    UNKNOWN,
    Bound,
    Misfit,
    fit,
    free_names,
    settled,
    substitute,
)
from .block_params import (
    named_param,
    note_params,
    read_use,
    report_other_kind,
    template_named,
    validated,
)
from .records import CheckContext, Checker, Doubts, FindingSet, StandIn
from .template_params import read_setting
from .wiring import (
    Given,
    NoOutput,
    Reads,
    as_meant,
    at_one_position,
    common_signature,
    fit_ports,
    giving,
    report_misfit,
    report_unknown_ports,
    report_unwired,
    typed_signature,
)

Infer = Callable[[Checker, Use, Reads, str, str], Part | None]
"""Types a block: (checker, use, given, at, pointer of the wires)."""
MOST_PARTS = 4_000
"""Maximum number of parts that are kept: those of four of the largest specs."""


def part_of(checker: Checker, use: Use, inputs: Reads, at: str, infer: Infer) -> Part | None:
    """Return the part of a node, or None if its block is unknown.

    Args:
        checker: the state that the scopes share.
        use: the node as written.
        inputs: port to the value that it reads.
        at: JSON Pointer of the node.
        infer: `infer_part`, called if no part of a node that is alike is known.
    """
    key, reads = _key(checker.context, use, inputs, at)
    cache = _place(key) if key is not None else []
    if cache:
        checker.context.values.read.update(reads)
        for inner, below in _uses(use, at):
            checker.findings.active_params.update(
                below + pointer("params", name) for name in inner.params
            )
        return cache[0]
    before = _mistakes(checker.findings, checker.doubts)
    part = infer(checker, use, inputs, at, at + pointer("in"))
    if (
        key is not None
        and part is not None
        and before == _mistakes(checker.findings, checker.doubts)
    ):
        unclear = checker.doubts.unsized | checker.doubts.unnamed
        if not any(below in unclear for _, below in _uses(use, at)):
            cache.append(part)
    return part


@functools.lru_cache(maxsize=MOST_PARTS)
def _place(key: tuple[Any, ...]) -> list[Part]:
    """Return the place where the part of a key is kept; it is empty at first."""
    del key
    return []


def _mistakes(findings: FindingSet, doubts: Doubts) -> tuple[int, ...]:
    """Return numbers that grow with each mistake that concerns a part."""
    return findings.calls, doubts.misfits, doubts.doubts, len(doubts.unwired)


def _key(
    context: CheckContext, use: Use, inputs: Reads, at: str
) -> tuple[tuple[Any, ...] | None, frozenset[str]]:
    """Return everything that the part of a node depends on, and the params that it reads.

    The key is None if the part also depends on something else: on a mistake, a template, or a
    param that chooses a block or holds a model.
    """
    key = [*_types(inputs), *_blocks(context, use, at), _step_axis(context) or ""]
    names = frozenset(name for inner, _ in _uses(use, at) for name in _reads(inner))
    for name in sorted(names):
        value = context.values.resolved.get(name)
        key += (name, repr(value) if isinstance(value, bool | int | float | str) else None)
    return None if None in key else tuple(key), names


def _step_axis(context: CheckContext) -> str | None:
    """Return the axis along which the spec decodes, or is divided into segments, if any."""
    steps = context.spec.step or context.spec.segments
    return steps.axis if steps else None


def _types(inputs: Reads) -> Iterator[Any]:
    """Yield the wired ports and the types of their values, and None for each mistake."""
    for port, read in inputs.items():
        yield port
        yield read.type if isinstance(read, Given) and not read.guessed else None


def _blocks(context: CheckContext, use: Use, at: str) -> Iterator[Any]:
    """Yield the blocks and params of a use and of those in its slots; None if they are unclear."""
    for inner, below in _uses(use, at):
        block = context.registry.get(inner.use)
        nested = any(isinstance(value, dict | list) for value in inner.params.values())
        unclear = block is None or inner.use in context.spec.blocks or nested
        # The part that is kept holds the block, so that no other block gets its identity.
        yield None if unclear or context.lost.covers(below + pointer("params")) else id(block)
        yield from inner.fill
        yield repr(inner.params)


def _reads(use: Use) -> Iterator[str]:
    """Yield the names that the params of a use read; an empty one for a wrong expression."""
    for value in use.params.values():
        if is_expression(value):
            yield from _names(value)


@functools.lru_cache(maxsize=MOST_PARTS)
def _names(text: str) -> tuple[str, ...]:
    """Return the names in an expression with its sign; no param has an empty name."""
    try:
        return names_in(text[1:])
    except ExpressionError:
        return ("",)


def _uses(use: Use, at: str) -> Iterator[tuple[Use, str]]:
    """Yield a use and those in its slots, each with its JSON Pointer."""
    yield use, at
    for slot, inner in use.fill.items():
        yield from _uses(inner, at + pointer("fill", slot))


def infer_part(
    checker: Checker,
    use: Use,
    inputs: Reads,
    at: str,
    wires_at: str,
    passed: frozenset[str] = frozenset(),
) -> Part | None:
    """Type one use of a registered block, and the blocks in its slots.

    Args:
        checker: the state that the scopes share.
        use: the use as written.
        inputs: port to the value that it reads.
        at: JSON Pointer of the use.
        wires_at: JSON Pointer of the wires, which belong to the node.
        passed: wires that another block of the node takes, which are not unknown here.

    Returns:
        The part, in which mistakes are reported and replaced by guesses; None if the block is
        unknown.
    """
    written = read_use(checker, use, at)
    standin = validated(checker, written, at) if written else None
    if written is None or standin is None or standin.unclear:
        _look_into(checker, use, at)
        return None
    block = written.block
    filled = frozenset(f"/{slot}" for slot in use.fill)
    signature = common_signature(block, standin, filled.union(inputs))
    takes = bool(use.fill) or any(not slot.optional for slot in signature.slots)
    corrected = as_meant(signature.inputs, inputs, slots=takes)
    if corrected.keys() != inputs.keys():
        signature = common_signature(block, standin, filled.union(corrected))
    port_names = {port_.name for port_ in signature.inputs}
    note_params(checker, written, standin, port_names & corrected.keys())
    inner = {name: read for name, read in inputs.items() if name not in port_names}
    mine = frozenset(inner) if takes else passed
    report_unknown_ports(
        checker.findings, checker.doubts, port_names, inputs, block.key, wires_at, mine
    )
    before = checker.doubts.misfits
    if block.typed is not None:
        signature = typed_signature(checker, block, standin, signature, corrected, at, wires_at)
    fitted = fit_ports(checker, signature.inputs, corrected, signature.same, block.key, wires_at)
    certain = fitted.certain(checker.doubts.misfits - before)
    several = frozenset(inner) if len(signature.slots) > 1 else passed
    sizes = widths(signature, certain)
    inside = {**block.slot_sizes(standin.params, sizes), **certain} if signature.slots else certain
    fill = _infer_fill(checker, use, block, signature.slots, inside, inner, at, wires_at, several)
    if any(slot.name not in fill for slot in _required(signature, use)):
        checker.doubts.unnamed.add(at)
        # A wire for the empty slot may also be a misspelled one of the block itself.
        wrong = {name: inputs[name] for name in inner if name in _misspelled(port_names, inputs)}
        report_unknown_ports(
            checker.findings, checker.doubts, port_names, wrong, block.key, wires_at
        )
    elif takes and len(signature.slots) > 1:
        _report_untaken(checker.findings, checker.doubts, block, fill, inner, wires_at, passed)
    report_unwired(checker, signature.inputs, inputs, block.key, wires_at.removesuffix("/in"))
    certain = fitted.certain(checker.doubts.misfits - before)
    if any(certain.get(name) == UNKNOWN for name in widths(signature, fitted.bound)):
        checker.doubts.unsized.add(at)
    block, arguments = _sized(checker, use, block, standin, signature, fitted.bound, at, wires_at)
    names = set().union(*(free_names(port_.type) for port_ in signature.inputs))
    axes = {name: certain[name] for name in names if name in certain}
    inside_ports = (name for filling in fill.values() for name in filling.inputs)
    order = (*(port_.name for port_ in signature.inputs), *inside_ports)
    return Part(
        block=block,
        params=standin.params,
        arguments=arguments,
        signature=signature,
        inputs={
            name: read.type
            for name, read in leading(corrected, order).items()
            if isinstance(read, Given)
            and (
                name in port_names
                or name not in passed
                or any(name in _taken(p) for p in fill.values())
            )
        },
        outputs={
            port_.name: settled(substitute(port_.type, certain)) for port_ in signature.outputs
        },
        axes=axes,
        fill=fill,
        stores=stored_ports(signature, axes, corrected, _step_axis(checker.context))
        if block.written is not None
        else (),
    )


def _required(signature: Signature, use: Use) -> list[Slot]:
    """Return the slots that must be filled, or that a use fills."""
    return [slot for slot in signature.slots if not slot.optional or slot.name in use.fill]


def _misspelled(port_names: Collection[str], inputs: Reads) -> frozenset[str]:
    """Return the wires that are named almost like a port of the block that is not wired."""
    free = [name for name in port_names if name not in inputs]
    return frozenset(name for name in inputs if name not in port_names and nearest(name, free))


_Weights = tuple[Mapping[str, Any], Mapping[str, tuple[int, ...]]]
"""Arguments of a block's module, and the shapes of its parameters."""
_GUESSED_SIZE = 64
"""A size that stands for an unknown one."""


def _sized(
    checker: Checker,
    use: Use,
    block: BlockType,
    standin: StandIn,
    signature: Signature,
    bound: Bound,
    at: str,
    wires_at: str,
) -> tuple[BlockType, Mapping[str, Any]]:
    """Return the arguments of a block's module, and the block.

    If the arguments depend on a mistake, they are a guess, which `checker.unsized` records, or
    `checker.unnamed` if the guess also decides which parameters there are.
    """
    sizes = widths(signature, bound)
    unknown = {name for name in width_names(signature) if name not in sizes}
    tried: list[_Weights] = []
    errors: list[ValueError] = []
    for params in standin.variants:
        try:
            declared = without_lora(params, block.arguments(params, sizes), block.maps)
            arguments = {**declared, **signature.arguments}
            tried.append((arguments, block.weights(arguments)))
        except KeyError as error:
            _report_unsized(checker.findings, block, str(error.args[0]), bound, wires_at)
            sizes |= dict.fromkeys(unknown, _GUESSED_SIZE)
            checker.doubts.unsized.add(at)
            break
        except ValueError as error:
            errors.append(error)
    if at in checker.doubts.unsized:
        tried = _with_guesses(block, standin, sizes)
    elif errors and not tried and standin.doubtful <= block.params.model_fields.keys():
        _report_clash(checker.context, checker.findings, use, block.key, errors, at)
    if not tried:
        checker.doubts.unnamed.add(at)
        return replace(block, weights=no_weights, maps={}), {}
    weights = [shapes for _, shapes in tried]
    if not standin.complete or any(shapes.keys() != weights[0].keys() for shapes in weights):
        checker.doubts.unnamed.add(at)
    if not standin.complete or any(shapes != weights[0] for shapes in weights):
        checker.doubts.unsized.add(at)
    return block, tried[0][0]


def _with_guesses(block: BlockType, standin: StandIn, sizes: Mapping[str, int]) -> list[_Weights]:
    """Return the arguments and weights for every guess that fits some guessed sizes."""
    tried: list[_Weights] = []
    for params in standin.variants:
        try:
            arguments = without_lora(params, block.arguments(params, sizes), block.maps)
            tried.append((arguments, block.weights(arguments)))
        except (KeyError, ValueError):
            continue
    return tried


def _report_clash(
    context: CheckContext,
    findings: FindingSet,
    use: Use,
    key: str,
    errors: list[ValueError],
    at: str,
) -> None:
    """Report params that do not fit the sizes, unless a mistake in a param explains it."""
    error = errors[0]
    texts = {name: text for name, text in use.params.items() if is_expression(text)}
    reads = {word for text in texts.values() for word in words_in(text)}
    if len({str(error) for error in errors}) > 1 or reads & context.values.doubtful:
        return
    if reads:
        if (key, str(error)) in findings.clashes:
            return
        findings.clashes.add((key, str(error)))
    problem, *help_ = error.args or ("the params do not fit the sizes",)
    # The param that the message is about: a patch may have written it into another file's node.
    names = named_param(" ".join(map(str, (problem, *help_))), use.params)
    findings.report(
        code="P02",
        at=at + pointer("params", *names) if use.params else at,
        problem=f"{key}: {problem}",
        help=str(help_[0]) if help_ else "",
    )


def _report_unsized(
    findings: FindingSet, block: BlockType, name: str, bound: Bound, at: str
) -> None:
    """Report a graph axis where a block needs a number; unbound names are not reported."""
    axis = bound.get(name)
    if isinstance(axis, str) and axis[:1].isupper():
        findings.report(
            code="T03",
            at=at,
            problem=f"axis '{name}' of {block.key} is {axis}, and must be a number",
            help="wire a value whose last axes are numbers",
        )


def _look_into(checker: Checker, use: Use, at: str) -> None:
    """Report errors in the slots of a use that cannot itself be typed."""
    for slot, inner in use.fill.items():
        location = at + pointer("fill", slot)
        if template_named(checker.context, inner):
            continue
        written = read_use(checker, inner, location)
        if written is not None:
            validated(checker, written, location)
        _look_into(checker, inner, location)


def _infer_fill(  # noqa: PLR0913, PLR0917 - the local state of `infer_part`
    checker: Checker,
    use: Use,
    block: BlockType,
    slots: tuple[Slot, ...],
    bound: Bound,
    inner: Reads,
    at: str,
    wires_at: str,
    passed: frozenset[str],
) -> dict[str, Filling]:
    """Type the blocks in the slots of a use, without those that are unknown.

    The wires in `passed` may belong to another slot, so they need no port here.
    """
    written = _slots_as_meant(checker, use, block, [slot.name for slot in slots], at)
    fill: dict[str, Filling] = {}
    required = [slot for slot in slots if not slot.optional]
    for slot in slots:
        if slot.name not in written:
            if not slot.optional and len(use.fill) < len(required):
                checker.findings.report(
                    code="W05",
                    at=at,
                    problem=f"slot '{slot.name}' of {block.key} is empty",
                    evidence=(f"wanted {slot.input.type} -> {slot.output.type}",),
                    help=f'add "fill": {{"{slot.name}": {{"use": ...}}}}',
                )
            continue
        key = written[slot.name]
        location = at + pointer("fill", key)
        direct = use.fill[key].use not in checker.context.spec.blocks
        registered = checker.context.registry.get(use.fill[key].use) if direct else None
        if registered is not None and report_other_kind(
            checker.context, checker.findings, slot, registered, block, location
        ):
            continue
        what = f"slot {slot.name} of {block.key}"
        entries: dict[str, Given | NoOutput | None] = {
            port_.name: Given(settled(substitute(port_.type, bound)), what, slot=location)
            for port_ in (slot.input, *slot.others)
        }
        optional = passed.union(slot.entries if slot.takes else slot.entries[1:])
        misfits = checker.doubts.misfits
        wires = inner
        if slot.steps_over:
            wires = at_one_position(checker, block, bound.get(slot.steps_over), inner, wires_at)
        part = _infer_filling(
            checker, use.fill[key], {**entries, **wires}, location, wires_at, optional, slot
        )
        if part is None:
            continue
        if registered is None and report_other_kind(
            checker.context, checker.findings, slot, part, block, location
        ):
            continue
        fill[slot.name] = part
        before = checker.doubts.misfits == misfits
        for port_ in slot.returns:
            if port_.name not in part.outputs:
                outputs = _outputs_of(checker.context, part)
                if port_.name not in outputs:
                    checker.findings.report(
                        code="N03",
                        at=location,
                        problem=f"{part.key} has no output '{port_.name}', which the slot takes",
                        evidence=(f"outputs {', '.join(outputs)}",),
                        help=f"call an output of what fills the slot '{port_.name}'",
                    )
                continue
            back = fit(port_.type, part.outputs[port_.name], bound, {})
            if isinstance(back, Misfit) and before:
                name = f"{part.key}, port {port_.name}"
                output = Given(part.outputs[port_.name], name, slot=location)
                expected = settled(substitute(port_.type, bound))
                owner = f"{block.key}, slot {slot.name}"
                help_ = f"fill the slot with a block or a template that returns {expected}"
                report_misfit(checker, back, port_, output, owner, location, help_)
    return fill


def _outputs_of(context: CheckContext, part: Filling) -> tuple[str, ...]:
    """Return the names of the outputs of a block or template, whether or not they are typed."""
    if isinstance(part, TemplatePart):
        return tuple(context.spec.blocks[part.key].outputs)
    return tuple(part.outputs)


def _slots_as_meant(
    checker: Checker, use: Use, block: BlockType, names: list[str], at: str
) -> dict[str, str]:
    """Return the slots that a use fills, each with its name there, and report unknown ones."""
    corrected = {name: name for name in use.fill if name in names}
    for name in use.fill:
        if name in names:
            continue
        checker.findings.report(
            code="W05",
            at=at + pointer("fill", name),
            problem=f"{block.key} has no slot '{name}'",
            help=did_you_mean(name, names) or f"remove 'fill': {block.key} has no slots",
            fix=renamed(at + pointer("fill", name), name, names),
        )
        free = [slot for slot in names if slot not in corrected]
        near = nearest(name, free) or (free[0] if len(free) == 1 else "")
        if near:
            corrected[near] = name
        else:
            _look_into(checker, Use(use="", fill={name: use.fill[name]}), at)
    return corrected


def _taken(part: Filling) -> frozenset[str]:
    """Return the ports of a block or template, including those of the blocks in its slots."""
    if isinstance(part, TemplatePart):
        return frozenset(part.body.inputs)
    port_names = {port_.name for port_ in part.signature.inputs}
    return frozenset(port_names).union(*map(_taken, part.fill.values()))


def _report_untaken(
    findings: FindingSet,
    doubts: Doubts,
    block: BlockType,
    fill: dict[str, Filling],
    inner: Reads,
    wires_at: str,
    passed: frozenset[str],
) -> None:
    """Report wires for which no slot has a port."""
    taken = frozenset[str]().union(*map(_taken, fill.values()))
    for name in inner:
        if name not in taken and name not in passed:
            doubts.unknown_wires.add(wires_at + pointer(name))
            findings.report(
                code="N03",
                at=wires_at + pointer(name),
                problem=f"no slot of {block.key} has a port '{name}'",
                help=did_you_mean(name, sorted(taken)),
                fix=renamed(wires_at + pointer(name), name, taken),
            )


def _infer_filling(
    checker: Checker,
    use: Use,
    reads: Reads,
    at: str,
    wires_at: str,
    passed: frozenset[str],
    slot: Slot,
) -> Filling | None:
    """Type the registered block or the template in a slot."""
    name = template_named(checker.context, use)
    if not name:
        part = infer_part(checker, use, reads, at, wires_at, passed)
        part = part and giving(part, frozenset())
        if part is not None:
            _check_outputs(checker.findings, part.key, tuple(part.outputs), 1, at)
        return part
    setting = read_setting(checker, use, name, at)
    ports = checker.context.spec.blocks[name].inputs
    reads = {key: read for key, read in reads.items() if key in ports or key not in passed}
    node_at = wires_at.removesuffix("/in")
    body = checker.context.infer_template(checker, name, reads, node_at, setting=setting)
    if body is None:
        return None
    outputs = tuple(checker.context.spec.blocks[name].outputs)
    _check_outputs(checker.findings, f"template '{name}'", outputs, len(slot.returns), at)
    inputs = {port_: read.type for port_, read in reads.items() if isinstance(read, Given)}
    return TemplatePart(body=body, inputs=inputs)


def _check_outputs(
    findings: FindingSet, what: str, ports: tuple[str, ...], takes: int, at: str
) -> None:
    """Report a block in a slot that has more outputs than the slot takes."""
    if len(ports) <= takes:
        return
    help_ = "remove outputs until one is left, or use the template as a node"
    if takes > 1:
        help_ = f"remove outputs until {takes} are left, or let the slot take them"
    outside = "write out the path around it: dropout@1, elementwise@1 for the sum, a norm"
    if not what.startswith("template"):
        help_ = f"use {what} as a node, and {outside}"
    findings.report(
        code="W11",
        at=at,
        problem=f"{what} has {len(ports)} outputs, and the slot takes {takes}"
        if takes > 1
        else f"{what} has {len(ports)} outputs, and a slot takes one",
        evidence=(f"outputs {', '.join(ports)}",),
        help=help_,
    )
