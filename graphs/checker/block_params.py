"""Params of blocks: resolve the block of a use, validate its params, and report idle ones.

A wrong param gets its default, or another valid value if it has none.  What a block does may
depend on that guess, so it is compared for several valid values: only what they have in common is
used to check other parts of the spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ...specs.expressions import is_expression, words_in
from ...specs.findings import certainly_meant, did_you_mean, nearest, pointer, renamed, respelled
from ...specs.form import Use
from ...specs.json_tree import is_in, value_at
from ...specs.text_edits import Fix, replacing
from ...specs.wording import converted, error_clause
from ..ir.block_type import BlockType, Needs, Slot, Unwired
from ..ir.graph import Filling, Part
from .records import MISSING, CheckContext, Checker, FindingSet, StandIn, holds_missing

_TRIED = (True, False, None, 0.25, 1, 8, 512)
"""Values of which at least two are valid for most params."""
MOST_FITTING = 64
"""Largest number that `fitting` tries."""
_DIVISIBLE = 720_720
"""A multiple of all numbers up to 16."""
_ENOUGH = 6
"""Maximum number of other values that are compared for one param."""


def stand_in(
    block: BlockType, values: Mapping[str, Any], doubtful: frozenset[str], most: int
) -> StandIn | None:
    """Return params with guesses for the doubtful ones, or None if no valid params are found.

    Args:
        block: the block.
        values: the valid params.
        doubtful: the params that are wrong, missing or unknown.
        most: maximum number of other guesses.
    """
    fields = block.params.model_fields
    sound_values = {name: value for name, value in values.items() if name not in doubtful}
    for name in doubtful & fields.keys():
        if fields[name].is_required():
            guesses = (block.example.get(name, 1), *_tried(fields[name].annotation))
            sound_values[name] = next((v for v in guesses if _accepts(block, name, v)), None)
    params = _made(block, sound_values)
    if params is None:
        return None
    others: list[BaseModel] = []
    unclear = False
    for name in sorted(doubtful & fields.keys()):
        before, room = len(others), min(most, len(others) + _ENOUGH)
        for value in _tried(fields[name].annotation):
            other = _made(block, {**sound_values, name: value}) if len(others) < room else None
            if other is not None and other != params:
                others.append(other)
        unclear |= before == len(others) < room
    return StandIn(params, tuple(others), doubtful, len(others) < most, unclear)


class _AnySize(dict[str, int]):
    """Sizes that are multiples of most numbers of heads, whatever their names."""

    def __missing__(self, name: str) -> int:
        return _DIVISIBLE

    def get(self, name: str, default: Any = None) -> Any:
        """Return the default: a size that may be unknown is."""
        return super().get(name, default)


def fitting(block: BlockType, values: Mapping[str, Any], name: str) -> list[int]:
    """Return the numbers that fit the other params as the value of one, if not all do.

    Args:
        block: the block.
        values: the other params.
        name: a param whose values are whole numbers.
    """
    numbers = []
    for number in range(1, MOST_FITTING + 1):
        params = _made(block, {**values, name: number})
        if params is None:
            return []
        try:
            block.arguments(params, _AnySize())
        except (KeyError, ValueError):
            continue
        numbers.append(number)
    return numbers if len(numbers) < MOST_FITTING else []


def _made(block: BlockType, values: Mapping[str, Any]) -> BaseModel | None:
    try:
        return block.params.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError:
        return None


def _accepts(block: BlockType, name: str, value: Any) -> bool:
    """Return whether a value is valid for one param, whatever the others are."""
    try:
        block.params.model_validate_json(json.dumps({name: value}), strict=True)
    except ValidationError as errors:
        return all(error["loc"][:1] != (name,) for error in errors.errors())
    return True


def _tried(annotation: Any) -> tuple[Any, ...]:
    """Return values to try for a param, by its annotation."""
    return tuple(dict.fromkeys(choices(annotation))) or _TRIED


def choices(annotation: Any) -> Iterator[Any]:
    """Yield the values of the literals in an annotation, such as that of a param."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for inner in get_args(annotation):
            yield from choices(inner)


_CHOICE_KEYS = ("use", "params")


@dataclass(frozen=True, slots=True)
class Written:
    """A use as written: its block, and its params with the pointer of each."""

    block: BlockType
    texts: Mapping[str, Any]
    """Params as written at the use, without those of a block choice."""
    params: dict[str, Any]
    places: dict[str, str]
    chosen: bool
    """Whether a param chose the block."""
    unread: bool = False
    """Whether some params are unknown, because the record that contains them is wrong."""


def read_use(checker: Checker, use: Use, at: str) -> Written | None:
    """Return the block that a use names, directly or by a block choice, and its params."""
    unread = checker.context.lost.covers(at + pointer("params"))
    params = checker.context.values.resolve(use.params, at + pointer("params"))
    if params is MISSING:
        params, unread = {}, True
    places = {name: at + pointer("params", name) for name in use.params}
    key, key_at = use.use, at + pointer("use")
    if is_expression(key):
        choice = checker.context.values.resolve(key, key_at)
        name = key[1:].strip()
        home = (
            checker.context.values.place_of(name)
            if name in checker.context.values.written
            else key_at
        )
        if choice is MISSING or not is_choice(checker.findings, key, choice, key_at, home):
            return None
        key, key_at = choice["use"], home + pointer("use")
        chosen = choice.get("params", {})
        if not isinstance(chosen, dict):
            chosen, unread = {}, True
        params |= chosen
        places |= {name: home + pointer("params", name) for name in chosen}
    block = checker.context.registry.get(key)
    if block is None:
        _report_unknown_block(checker, key, key_at)
        block = checker.context.registry.get(meant_block(checker.context, key))
    if block is None:
        return None
    texts = {name: text for name, text in use.params.items() if places[name].startswith(at)}
    return Written(block, texts, params, places, is_expression(use.use), unread)


def template_named(context: CheckContext, use: Use) -> str:
    """Return the template that a use names, directly or by a block choice, or ``""``."""
    if use.use in context.spec.blocks:
        return use.use
    name = use.use[1:].strip() if is_expression(use.use) else ""
    choice = context.values.resolved.get(name)
    used = choice.get("use") if isinstance(choice, dict) else None
    if isinstance(used, str) and used in context.spec.blocks:
        context.values.read.add(name)
        return used
    return ""


def is_choice(findings: FindingSet, key: str, choice: Any, at: str, home: str) -> bool:
    """Return whether the value of a param is a block choice, and report it if it is not.

    Args:
        findings: receives what is wrong.
        key: the expression that reads the param.
        choice: its value.
        at: JSON Pointer of the expression.
        home: JSON Pointer of the param.
    """
    example = 'give the param a value such as {"use": "relu@1"}'
    if not isinstance(choice, dict) or "use" not in choice:
        findings.report(code="P03", at=at, problem=f"'{key}' is not a block choice", help=example)
        return False
    for name in choice:
        if name not in _CHOICE_KEYS:
            findings.report(
                code="P03",
                at=home + pointer(name),
                problem=f"a block choice has no key '{name}'",
                help=did_you_mean(name, _CHOICE_KEYS),
                fix=renamed(home + pointer(name), name, _CHOICE_KEYS),
            )
    if choice["use"] is MISSING:
        return False
    if choice.get("params") is MISSING:
        return True
    for name, form, what in (("use", str, "a block's name"), ("params", dict, "an object")):
        if name in choice and not isinstance(choice[name], form):
            findings.report(
                code="P03",
                at=home + pointer(name),
                problem=f"'{name}' of a block choice is not {what}",
                help=example,
            )
    return isinstance(choice["use"], str)


def meant_block(context: CheckContext, key: str) -> str:
    """Return the block that an unknown name most likely means, or ``""``.

    A template may have a more similar name.
    """
    if key in context.lost.entries("/blocks"):
        return ""
    near = context.registry.suggest(key)
    if near.partition("@")[0] == key.partition("@")[0]:
        return near
    if key.partition("@")[0] in context.spec.blocks:
        return ""
    names = [*context.registry.keys(), *context.spec.blocks, *context.lost.entries("/blocks")]
    return near if nearest(key, names) == near and certainly_meant(key, names) else ""


def _report_unknown_block(checker: Checker, key: str, at: str) -> None:
    """Report an unknown block, and mark the template that it most likely meant as used."""
    if key in checker.context.lost.entries("/blocks"):
        return
    near, name = checker.context.registry.suggest(key), key.partition("@")[0]
    fix: Fix | None
    if near.partition("@")[0] == name:
        help_, fix = f"did you mean '{near}'?", replacing(at, near, certain=True)
    elif name in checker.context.spec.blocks:
        checker.doubts.excused.add(name)
        help_ = f"did you mean '{name}'? templates have no versions"
        fix = replacing(at, name, certain=True)
    else:
        candidates = [*checker.context.registry.keys(), *checker.context.spec.blocks]
        checker.doubts.excused.add(nearest(key, checker.context.spec.blocks))
        help_ = (
            did_you_mean(key, candidates) if nearest(key, candidates) else "see 'weft list blocks'"
        )
        fix = respelled(at, key, candidates)
    checker.findings.report(
        code="N01", at=at, problem=f"unknown block '{key}'", help=help_, fix=fix
    )


def validated(checker: Checker, written: Written, at: str) -> StandIn | None:
    """Return a block's validated params, with guesses for those that are wrong and reported.

    An unknown param is reported; its value is then ignored, or used for the most similar missing
    param, so that the other params are still checked.  The result is None if no valid params are
    found.
    """
    block, places = written.block, dict(written.places)
    fields = block.params.model_fields
    values = {name: value for name, value in written.params.items() if name in fields}
    unknown = [name for name in written.params if name not in fields]
    for name in unknown:
        slot = _as_slot(checker.context, block, name)
        near = "" if slot else nearest(name, fields)
        checker.findings.report(
            code="N04",
            at=places[name],
            problem=f"{block.key} has no param '{name}'",
            help=slot or did_you_mean(name, fields) or f"{block.key} has no params",
            fix=None if slot else renamed(places[name], name, fields),
        )
        if near and near not in values:
            values[near], places[near] = written.params[name], places[name]
    # An unknown param that is not similar to any may be a known one under another name.
    lost = {name for name in unknown if not nearest(name, fields)} if not written.chosen else set()
    missing = {name for name, value in values.items() if holds_missing(value)}
    valid_values = {name: value for name, value in values.items() if name not in missing}
    if written.unread:
        missing |= fields.keys() - valid_values.keys()
    wrong = missing | {name for name in lost if not _as_slot(checker.context, block, name)}
    try:
        # Strict JSON validation: a string is not a number, and a boolean is not a probability.
        params = block.params.model_validate_json(
            json.dumps(valid_values, default=str), strict=True
        )
    except ValidationError as errors:
        for several in _by_value(errors.errors()):
            error = several[0]
            wrong.add(str(error["loc"][0]) if error["loc"] else "")
            absent = error["type"] == "missing"
            if not absent or not (lost or missing.intersection(map(str, error["loc"]))):
                _report_param(
                    checker.context, checker.findings, written, several, valid_values, places, at
                )
        params = None
    if params is not None and not wrong:
        return StandIn(params)
    checker.doubts.doubts += 1
    sound = {name: value for name, value in valid_values.items() if name not in wrong}
    key = block.key, json.dumps(sound, sort_keys=True, default=str), frozenset(wrong)
    if key not in checker.memo.guesses:
        guess = stand_in(block, sound, key[2], checker.memo.variants_left)
        checker.memo.variants_left -= len(guess.others) if guess else 0
        checker.memo.guesses[key] = guess
    return checker.memo.guesses[key]


def _by_value(errors: Iterable[ErrorDetails]) -> Iterator[list[ErrorDetails]]:
    """Yield the errors about each value: one, or one for each form that it could have."""
    groups: dict[tuple[str, ...], list[ErrorDetails]] = {}
    for error in errors:
        key = (*map(str, error["loc"][:1]), repr(error["input"]))
        groups.setdefault(key, []).append(error)
    yield from groups.values()


def named_param(message: str, params: Iterable[str]) -> list[str]:
    """Return the first param that a message names, in a list, or none."""
    words = words_in(message)
    return [name for name in params if name in words][:1]


def check_choice(checker: Checker, name: str) -> None:
    """Check a block choice that no node reads: the nodes that read it may be lost."""
    at, unread = pointer("params", name), checker.context.values.read
    if template_named(checker.context, Use(use=f"={name}")):
        return
    checker.context.values.read = {*unread}
    written = read_use(checker, Use(use=f"={name}"), at)
    if written is not None:
        validated(checker, written, at)
    checker.context.values.read = unread


def _report_param(
    context: CheckContext,
    findings: FindingSet,
    written: Written,
    errors: Sequence[ErrorDetails],
    valid_values: Mapping[str, Any],
    places: Mapping[str, str],
    at: str,
) -> None:
    """Report one param that is missing or has an invalid value, which could have several forms."""
    block, texts, error = written.block, written.texts, errors[-1]
    clause = error_clause(errors)
    names = list(map(str, error["loc"][:1])) or named_param(clause, texts)
    name = "".join(names)
    if error["type"] == "missing" and len(error["loc"]) == 1:
        numbers = fitting(block, valid_values, name)
        listed = ", ".join(map(str, numbers[:-1])) + f" or {numbers[-1]}" if numbers[1:] else ""
        findings.report(
            code="W07",
            at=at,
            problem=f"param '{name}' of {block.key} is missing",
            help=f"add '{name}' to 'params'" + (f": {listed}" if listed else ""),
        )
        return
    home = places.get(name, at + "/params" if texts else at)
    where = context.values.blame(texts.get(name), home)
    if where is None:
        return
    field = block.params.model_fields.get(name)
    meaning = (field.description or "") if field else ""
    read = () if where == home else (f"read at {places[name]}",)
    subject = f"param '{name}' of {block.key}" if error["loc"] else block.key
    findings.report(
        code="P01",
        at=where + _inner(valid_values.get(name), error["loc"][1:]) if where == home else where,
        problem=f"{subject}{':' if error['type'] == 'value_error' else ''} {clause}",
        evidence=(f"given  {json.dumps(error['input'], default=str)}", *read),
        help=f"'{name}' is: {meaning.partition('. ')[0].rstrip('.')}" if meaning else "",
        fix=_corrected(context, error, where),
    )


def _inner(value: Any, path: Sequence[int | str]) -> str:
    """Return the pointer to the part of a value that an error is about."""
    at = ""
    for part in map(pointer, path):
        if is_in(value, part):
            value, at = value_at(value, part), at + part
    return at


def _corrected(context: CheckContext, error: ErrorDetails, at: str) -> Fix | None:
    """Return the fix of a param's value that was written in another type, or without a `=`."""
    value, (expected, _, _) = error["input"], str(error["type"]).partition("_")
    number = expected in ("int", "float", "bool")
    if number and isinstance(value, str) and value in context.values.written:
        return replacing(at, f"={value}", certain=True)
    if error["type"] == "literal_error" and isinstance(value, str):
        options = re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", "")))
        return respelled(at, value, options)
    return converted(at, expected, value)


def _as_slot(context: CheckContext, block: BlockType, name: str) -> str:
    """Return how to fill a slot, if an unknown param has the name of a slot or of its block."""
    try:
        params = block.params.model_validate({**block.example})
        slots = block.signature(params, frozenset(block.example_inputs)).slots
    except ValueError:
        return ""
    param = nearest(name, block.params.model_fields)
    near = "" if param else nearest(name, [slot.name for slot in slots])
    for slot in slots:
        fitting = [block for block in context.registry if slot.takes and block.fills == slot.takes]
        matching = [block.key for block in fitting if name in (block.name, block.key)]
        if not matching and slot.name not in (name, near):
            continue
        example = (matching or [block.key for block in fitting] or ["..."])[0]
        use = f'"fill": {{"{slot.name}": {{"use": "{example}"}}}}'
        what = (
            f"{matching[0]} is a block for the slot '{slot.name}'"
            if matching
            else f"'{slot.name}' is a slot"
        )
        return f"{what}: write {use} next to 'params'"
    return ""


def report_other_kind(
    context: CheckContext,
    findings: FindingSet,
    slot: Slot,
    part: Filling | BlockType,
    block: BlockType,
    at: str,
) -> bool:
    """Report a block whose kind of part does not fit the slot; return whether it does not."""
    filler = part.block if isinstance(part, Part) else part
    kind = filler.fills if isinstance(filler, BlockType) else ""
    if kind == slot.takes:
        return False
    fitting = [
        candidate.key
        for candidate in context.registry
        if slot.takes and candidate.fills == slot.takes
    ]
    findings.report(
        code="W15",
        at=at,
        problem=f"{part.key} does not fit the slot '{slot.name}' of {block.key}",
        evidence=(f"wanted {_kind_text(slot.takes)}, got {_kind_text(kind)}",),
        help=f"use {', '.join(fitting)}" if fitting else "use a block that maps vectors to vectors",
    )
    return True


def _kind_text(kind: str) -> str:
    return f"a part of kind '{kind}'" if kind else "a block"


def note_params(
    checker: Checker, written: Written, standin: StandIn, wired: Collection[str]
) -> None:
    """Note which params of one use of a block have an effect and which have none.

    A template is typed once for each combination of port types: a param has no effect only if
    it has none in any of them.

    Args:
        checker: the state that the scopes share.
        written: the use as written.
        standin: its params, some of which may be guesses.
        wired: the ports of the block that are wired.
    """
    params = standin.params
    idle = {idle_param.param: idle_param for idle_param in idle_params(params, wired)}
    checker.doubts.doubts += bool(idle)
    for name in written.params:
        at = written.places[name]
        if (
            name not in idle
            or _doubtful(idle[name], standin.doubtful)
            or _by_override(checker.context, written, idle[name])
        ):
            checker.findings.active_params.add(at)
        else:
            checker.findings.idle_params.setdefault(at, _fields(written, params, idle[name]))


def report_idle(findings: FindingSet) -> None:
    """Report the params that have no effect anywhere."""
    for at, fields in findings.idle_params.items():
        if at not in findings.active_params:
            findings.report(code="P08", at=at, **fields)


def _doubtful(idle: Idle, doubtful: Collection[str]) -> bool:
    """Return whether a param has no effect only because of a guess."""
    reads = {idle.param, idle.because.param if isinstance(idle.because, Needs) else idle.param}
    return not reads.isdisjoint(doubtful)


def _by_override(context: CheckContext, written: Written, idle: Idle) -> bool:
    """Return whether only an override makes a param idle: the spec itself is then correct.

    A run or a study that sets `norm` to `none` need not reset the params of the norm.
    """
    if not isinstance(idle.because, Needs):
        return False
    return _overridden(context, written, idle.because.param) and not _overridden(
        context, written, idle.param
    )


def _overridden(context: CheckContext, written: Written, name: str) -> bool:
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


@dataclass(frozen=True, slots=True)
class Idle:
    """A param that was set and has no effect."""

    param: str
    because: Needs | Unwired


def idle_params(params: BaseModel, wired: Collection[str]) -> Iterator[Idle]:
    """Yield the params that differ from their defaults and have no effect.

    Args:
        params: the params of one use of a block.
        wired: names of its wired ports.
    """
    for name, info in type(params).model_fields.items():
        if info.is_required() or getattr(params, name) == info.default:
            continue
        for mark in info.metadata:
            if isinstance(mark, Needs | Unwired) and not _holds(mark, params, wired):
                yield Idle(name, mark)
                break


def _holds(mark: Needs | Unwired, params: BaseModel, wired: Collection[str]) -> bool:
    if isinstance(mark, Unwired):
        return mark.port not in wired
    value = getattr(params, mark.param)
    return value in mark.values if mark.values else value >= mark.least
