"""Parts: one use of a registered block, typed, with what stands in its slots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..specs.expressions import is_expression, words_in
from ..specs.findings import did_you_mean, nearest, pointer
from ..specs.form import Use
from .graph import Part, Scope
from .params import MISSING, holds_missing
from .ports import (
    Checker,
    Given,
    NoOutput,
    Reads,
    fit_ports,
    report_misfit,
    report_no_output,
    report_unwired,
)
from .shapes import Bound, Misfit, fit, free_names, substitute
from .signature import BlockType, NoParams, Signature, Slot


@dataclass(frozen=True, slots=True)
class _Written:
    """A use as written: its block, and its params with the place of each."""

    block: BlockType
    texts: Mapping[str, Any]
    """Params as they stand at the use; those that a block choice gives are left out."""
    params: dict[str, Any]
    places: dict[str, str]
    chosen: bool
    """Whether a param chose the block."""


def infer_part(
    checker: Checker,
    use: Use,
    given: Reads,
    at: str,
    wires_at: str,
    passed: frozenset[str] = frozenset(),
) -> Part | None:
    """Type one use of a registered block, and what stands in its slots.

    Args:
        checker: what the scopes share.
        use: the use as written.
        given: port to what it reads.
        at: JSON Pointer of the use.
        wires_at: JSON Pointer of the wires, which are the node's.
        passed: wires that another block of the node takes, so not unknown here.

    Returns:
        The part; None when something is wrong with it, which is then reported.
    """
    written = _read_use(checker, use, at)
    params = _validate(checker, written, at) if written else None
    if written is None or params is None:
        _look_into(checker, use, at)
        return None
    block = written.block
    signature = block.signature(params, frozenset(given))
    own = {port_.name for port_ in signature.inputs}
    inner = {name: read for name, read in given.items() if name not in own}
    mine = frozenset(inner) if signature.slots else passed
    bound = fit_ports(
        checker, list(signature.inputs), given, signature.same, block.key, wires_at, {}, mine
    )
    fill = _infer_fill(checker, use, block, signature.slots, bound, inner, at, wires_at)
    report_unwired(checker, signature.inputs, given, block.key, wires_at.removesuffix("/in"))
    if bound is None:
        return None
    sizes = {name: value for name, value in bound.items() if isinstance(value, int)}
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
        inputs={name: read.type for name, read in given.items() if isinstance(read, Given)},
        outputs=types,
        axes={name: bound[name] for name in names if name in bound},
        fill=fill,
    )


def _report_clash(checker: Checker, use: Use, block: BlockType, error: ValueError, at: str) -> None:
    """Report params that do not go with the sizes, unless a requirement already said so."""
    reads = {word for text in use.params.values() if is_expression(text) for word in words_in(text)}
    if reads & checker.values.doubtful:
        return
    if reads:
        if (block.key, str(error)) in checker.clashes:
            return
        checker.clashes.add((block.key, str(error)))
    problem, *help_ = error.args or ("the params do not go with the sizes",)
    checker.report(
        code="P02",
        at=at + pointer("params") if use.params else at,
        problem=f"{block.key}: {problem}",
        help=str(help_[0]) if help_ else "",
    )


def _report_unsized(checker: Checker, block: BlockType, name: str, bound: Bound, at: str) -> None:
    """Report an axis of the graph where a block needs a number; a free word stays silent."""
    axis = bound.get(name)
    if isinstance(axis, str) and axis[:1].isupper():
        checker.report(
            code="T03",
            at=at,
            problem=f"axis '{name}' of {block.key} is {axis}, and must be a number",
            help="wire a value whose last axes are numbers",
        )


def _look_into(checker: Checker, use: Use, at: str) -> None:
    """Report what is wrong in the slots of a use that cannot itself be typed."""
    for slot, inner in use.fill.items():
        here = at + pointer("fill", slot)
        written = _read_use(checker, inner, here)
        if written is not None:
            _validate(checker, written, here)
        _look_into(checker, inner, here)


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
    unknown = [name for name in use.fill if name not in names]
    for name in unknown:
        checker.report(
            code="W05",
            at=at + pointer("fill", name),
            problem=f"{block.key} has no slot '{name}'",
            help=did_you_mean(name, names) or f"remove 'fill': {block.key} has no slots",
        )
    if unknown:
        _look_into(checker, use, at)
        return None
    fill: dict[str, Part] = {}
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
        part = _infer_filling(checker, use.fill[slot.name], reads, here, wires_at)
        if part is None or bound is None:
            continue
        if slot.output.name not in part.outputs:
            known = tuple(part.outputs)
            report_no_output(checker, NoOutput(part.block.key, slot.output.name, known), here)
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


def _infer_filling(checker: Checker, use: Use, given: Reads, at: str, wires_at: str) -> Part | None:
    """Type what stands in a slot: a registered block, or a template."""
    name = template_named(checker, use)
    if not name:
        return infer_part(checker, use, given, at, wires_at)
    refuse_params(checker, use, name, at)
    body = checker.infer_template(checker, name, given, wires_at.removesuffix("/in"))
    if body is None:
        return None
    types = {port_: body.type_of(value) for port_, value in body.outputs.items()}
    if len(types) > 1:
        checker.report(
            code="W11",
            at=at,
            problem=f"template '{name}' gives {len(types)} values, and a slot takes one",
            evidence=(f"outputs {', '.join(types)}",),
            help="leave one output, or use the template as a node",
        )
        return None
    return Part(
        block=_as_block(name, body, checker.templates[name].doc),
        params=NoParams(),
        arguments={},
        signature=Signature(inputs=(), outputs=()),
        inputs={port_: read.type for port_, read in given.items() if isinstance(read, Given)},
        outputs=types,
        axes={},
        body=body,
    )


def _as_block(name: str, body: Scope, doc: str) -> BlockType:
    """Return a block type that stands for a template in a slot."""
    return BlockType(
        name=name,
        major=0,
        doc=doc or f"The template '{name}' of the spec.",
        source="the spec",
        signature=lambda _, __: Signature(inputs=(), outputs=()),
        weights=lambda _: body.weights(),
        module="",
        steps=True,
    )


def template_named(checker: Checker, use: Use) -> str:
    """Return the template that a use names, a block choice followed, or ``""``."""
    if use.use in checker.templates:
        return use.use
    name = use.use[1:].strip() if is_expression(use.use) else ""
    choice = checker.values.known.get(name)
    used = choice.get("use") if isinstance(choice, dict) else None
    if isinstance(used, str) and used in checker.templates:
        checker.values.read.add(name)
        return used
    return ""


def refuse_params(checker: Checker, use: Use, name: str, at: str) -> None:
    """Report params or slots that are given to a template, which has none."""
    if use.params or use.fill:
        what = "params" if use.params else "fill"
        checker.report(
            code="N04",
            at=at + pointer(what),
            problem=f"template '{name}' takes no {what}",
            help="templates read the spec's params",
        )


def _read_use(checker: Checker, use: Use, at: str) -> _Written | None:
    """Return the block that a use names and its params, a block choice followed."""
    params = checker.values.resolve(use.params, at + pointer("params"))
    if params is MISSING:
        return None
    places = {name: at + pointer("params", name) for name in params}
    key, key_at = use.use, at + pointer("use")
    if is_expression(key):
        choice = checker.values.resolve(key, key_at)
        name = key[1:].strip()
        home = checker.values.place_of(name) if name in checker.values.written else key_at
        if choice is MISSING or not _is_choice(checker, key, choice, key_at, home):
            return None
        key, key_at = choice["use"], home + pointer("use")
        params |= choice.get("params", {})
        places |= {name: home + pointer("params", name) for name in choice.get("params", {})}
    block = checker.registry.get(key)
    if block is None:
        _report_unknown_block(checker, key, key_at)
        return None
    texts = {name: text for name, text in use.params.items() if places[name].startswith(at)}
    return _Written(block, texts, params, places, chosen=is_expression(use.use))


def _is_choice(checker: Checker, key: str, choice: Any, at: str, home: str) -> bool:
    """Say whether a param's value chooses a block, reporting it when it does not.

    Args:
        checker: what the scopes share.
        key: the expression that reads the param.
        choice: its value.
        at: JSON Pointer of the expression.
        home: JSON Pointer of the param.
    """
    example = 'give the param a value such as {"use": "relu@1"}'
    if not isinstance(choice, dict) or "use" not in choice:
        checker.report(code="P03", at=at, problem=f"'{key}' is not a block choice", help=example)
        return False
    for name in choice:
        if name not in _CHOICE_KEYS:
            checker.report(
                code="P03",
                at=home + pointer(name),
                problem=f"a block choice has no key '{name}'",
                help=did_you_mean(name, _CHOICE_KEYS),
            )
    if choice["use"] is MISSING or choice.get("params") is MISSING:
        return False
    for name, form, what in (("use", str, "a block's name"), ("params", dict, "an object")):
        if name in choice and not isinstance(choice[name], form):
            checker.report(
                code="P03",
                at=home + pointer(name),
                problem=f"'{name}' of a block choice is not {what}",
                help=example,
            )
            return False
    return True


_CHOICE_KEYS = ("use", "params")


def _report_unknown_block(checker: Checker, key: str, at: str) -> None:
    """Report a name that is no block's, and excuse the template that it most likely meant."""
    near = checker.registry.suggest(key)
    if near.partition("@")[0] == key.partition("@")[0]:
        help_ = f"did you mean '{near}'?"
    else:
        known = [*checker.registry.keys(), *checker.templates]
        checker.excused.add(nearest(key, checker.templates))
        help_ = did_you_mean(key, known) if nearest(key, known) else "see 'weft blocks'"
    checker.report(code="N01", at=at, problem=f"unknown block '{key}'", help=help_)


def _validate(checker: Checker, written: _Written, at: str) -> BaseModel | None:
    """Return a block's params in their form, or report each that is wrong.

    An unknown param is reported and left out, or taken for the missing one that it is
    most like, so that the rest of the use is still checked.
    """
    block, places = written.block, dict(written.places)
    fields = block.params.model_fields
    values = {name: value for name, value in written.params.items() if name in fields}
    unknown = [name for name in written.params if name not in fields]
    for name in unknown:
        near = nearest(name, fields)
        checker.report(
            code="N04",
            at=places[name],
            problem=f"{block.key} has no param '{name}'",
            help=did_you_mean(name, fields) or f"{block.key} has no params",
        )
        if near and near not in values:
            values[near], places[near] = written.params[name], places[name]
    if holds_missing(values):
        return None
    try:
        # From JSON text, strictly: a text is no number there, and a flag no probability.
        return block.params.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as errors:
        # An unknown param like no other may be the missing one under another name.
        lost = any(not nearest(name, fields) for name in unknown) and not written.chosen
        for error in errors.errors():
            if not (lost and error["type"] == "missing"):
                _report_param(checker, block, error, written.texts, places, at)
    return None


def _report_param(
    checker: Checker,
    block: BlockType,
    error: ErrorDetails,
    texts: Mapping[str, Any],
    places: Mapping[str, str],
    at: str,
) -> None:
    """Report one param that is missing or has no right value."""
    name = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "missing" and len(error["loc"]) == 1:
        checker.report(
            code="W07",
            at=at,
            problem=f"param '{name}' of {block.key} is missing",
            help=f"add '{name}' to 'params'",
        )
        return
    where = checker.values.blame(texts.get(name), places.get(name, at))
    if where is None:
        return
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    field = block.params.model_fields.get(name)
    meaning = (field.description or "") if field else ""
    read = () if where == places.get(name, at) else (f"read at {places[name]}",)
    checker.report(
        code="P01",
        at=where,
        problem=f"param '{name}' of {block.key} {message[:1].lower()}{message[1:]}",
        evidence=(f"given  {json.dumps(error['input'], default=str)}", *read),
        help=f"'{name}' is: {meaning.partition('. ')[0].rstrip('.')}" if meaning else "",
    )
