"""Parts: one use of a registered block, typed, with what stands in its slots."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from ..specs.findings import did_you_mean, pointer
from ..specs.form import Use
from .graph import Part
from .params import MISSING, holds_missing
from .ports import Checker, Given, Reads, fit_ports, report_misfit, report_unknown_output
from .shapes import Bound, Misfit, fit, free_names, substitute
from .signature import BlockType, Slot


def infer_part(
    checker: Checker,
    use: Use,
    given: Reads,
    at: str,
    wires_at: str,
    passed: frozenset[str] = frozenset(),
) -> Part | None:
    """Type one use of a registered block, and what stands in its slots."""
    block, written = _find_block(checker, use, at)
    if block is None:
        return None
    params = _validate(checker, block, written, at + pointer("params"))
    if params is None:
        return None
    signature = block.signature(params, frozenset(given))
    own = {port_.name for port_ in signature.inputs}
    inner = {name: read for name, read in given.items() if name not in own}
    mine = frozenset(inner) if signature.slots else passed
    label = block.key
    bound = fit_ports(
        checker, list(signature.inputs), given, signature.same, label, wires_at, {}, mine
    )
    fill = _infer_fill(checker, use, block, signature.slots, bound, inner, at, wires_at)
    if bound is None or fill is None:
        return None
    sizes = {name: value for name, value in bound.items() if isinstance(value, int)}
    try:
        arguments = block.arguments(params, sizes)
    except ValueError as error:
        checker.report(
            code="P02", at=at + pointer("params"), problem=f"{label}: {error}", help=_help_of(error)
        )
        return None
    names = set().union(*(free_names(port_.type) for port_ in signature.inputs))
    types = {port_.name: substitute(port_.type, bound) for port_ in signature.outputs}
    return Part(
        block=block,
        params=params,
        arguments=arguments,
        signature=signature,
        inputs={name: read.type for name, read in given.items() if isinstance(read, Given)},
        outputs=types,
        axes={name: bound[name] for name in names if name in bound},
        fill=fill,
    )


def _help_of(error: ValueError) -> str:
    """Return the way out that a block's own check gives beside its problem."""
    return str(error.args[1]) if len(error.args) > 1 else ""


def _infer_fill(
    checker: Checker,
    use: Use,
    block: BlockType,
    slots: tuple[Slot, ...],
    bound: Bound | None,
    inner: Reads,
    at: str,
    wires_at: str,
) -> dict[str, Part] | None:
    """Type the blocks in the slots of a use; None when one could not be."""
    names = [slot.name for slot in slots]
    for name in use.fill:
        if name not in names:
            checker.report(
                code="W05",
                at=at + pointer("fill", name),
                problem=f"{block.key} has no slot '{name}'",
                help=did_you_mean(name, names),
            )
    fill: dict[str, Part] = {}
    for slot in slots:
        here = at + pointer("fill", slot.name)
        if slot.name not in use.fill:
            checker.report(
                code="W05",
                at=at,
                problem=f"slot '{slot.name}' of {block.key} is empty",
                evidence=(f"wanted {slot.input.type} -> {slot.output.type}",),
                help=f"add 'fill': {{'{slot.name}': {{'use': ...}}}}",
            )
            continue
        entry = None
        if bound is not None:
            entry = Given(substitute(slot.input.type, bound), f"slot {slot.name} of {block.key}")
        part = infer_part(
            checker, use.fill[slot.name], {slot.input.name: entry, **inner}, here, wires_at
        )
        if part is None or bound is None:
            continue
        if slot.output.name not in part.outputs:
            report_unknown_output(
                checker, part.block.key, slot.output.name, list(part.outputs), here
            )
            continue
        back = fit(slot.output.type, part.outputs[slot.output.name], bound, {})
        if isinstance(back, Misfit):
            given = Given(
                part.outputs[slot.output.name], f"{part.block.key}, port {slot.output.name}"
            )
            report_misfit(checker, back, slot.output, given, f"{block.key}, slot {slot.name}", here)
            continue
        fill[slot.name] = part
    return fill if len(fill) == len(slots) == len(use.fill) else None


def _find_block(checker: Checker, use: Use, at: str) -> tuple[BlockType | None, dict[str, Any]]:
    """Return the block that a use names, and its params, a block choice followed."""
    key, written = use.use, dict(use.params)
    if key.startswith("="):
        choice = checker.values.resolve(key, at + pointer("use"))
        if choice is MISSING:
            return None, {}
        if not isinstance(choice, dict) or not isinstance(choice.get("use"), str):
            checker.report(
                code="P03",
                at=at + pointer("use"),
                problem=f"'{key}' is not a block choice",
                help='give the param a value such as {"use": "relu@1"}',
            )
            return None, {}
        key, written = choice["use"], {**written, **choice.get("params", {})}
    block = checker.registry.get(key)
    if block is None:
        near = checker.registry.suggest(key)
        templates = did_you_mean(key, checker.templates) if not near else ""
        checker.report(
            code="N01",
            at=at + pointer("use"),
            problem=f"unknown block '{key}'",
            help=f"did you mean '{near}'?" if near else templates or "see 'weft blocks'",
        )
    return block, written


def _validate(
    checker: Checker, block: BlockType, written: dict[str, Any], at: str
) -> BaseModel | None:
    """Return a block's params in their form, or report each that is wrong."""
    resolved = checker.values.resolve(written, at)
    known = list(block.params.model_fields)
    sound = True
    for name in resolved:
        if name not in known:
            checker.report(
                code="N04",
                at=at + pointer(name),
                problem=f"{block.key} has no param '{name}'",
                help=did_you_mean(name, known) or f"{block.key} has no params",
            )
            sound = False
    resolved = {name: value for name, value in resolved.items() if name in known}
    if holds_missing(resolved):
        return None
    try:
        params = block.params.model_validate(resolved)
    except ValidationError as errors:
        for error in errors.errors():
            where = at + pointer(*(str(part) for part in error["loc"]))
            if error["type"] == "missing":
                name = str(error["loc"][-1])
                checker.report(
                    code="W07",
                    at=at.removesuffix("/params"),
                    problem=f"param '{name}' of {block.key} is missing",
                    help=f"add '{name}' to 'params'",
                )
                continue
            message = error["msg"].removeprefix("Value error, ")
            checker.report(
                code="P01",
                at=where,
                problem=f"{block.key}: {message[:1].lower()}{message[1:]}",
                evidence=(f"given  {error['input']!r}"[:120],),
            )
        return None
    return params if sound else None
