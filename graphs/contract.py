"""Contracts of plug-in blocks: report a wrong declaration when the block is registered.

The shipped blocks are not validated when Weft starts; `tests/blocks/test_plugin_contract.py` does
it.  A block of another package, or of a caller, is validated once, without torch: its header,
params and ports here, and its arguments, weights and costs in `formulas.py`, on the sizes of its
example.  `runtime/codegen/generated.py` validates its module when a model is built.
"""

from __future__ import annotations

import json
import keyword
import re
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError

from ..specs.findings import InputError, did_you_mean
from ..specs.wording import describe
from .formulas import BlockUse, refuse_wrong_formulas
from .ir.block_type import Behavior, BlockType, Family, Port, Role, Signature, Slot, widths
from .ir.value_type import (
    KINDS,
    Bound,
    Misfit,
    TypeTextError,
    ValueType,
    fit,
    free_names,
    names_of,
    parse_type,
    substitute,
)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_STEPPING = frozenset({"state", "position", "capacity"})
"""Arguments that `begin` and `step` have besides the ports."""
_WIDTH = 24
"""Size of vectors in a sample of a block without `example_inputs`: many divisors."""
_TEXTS = ("name", "doc", "source", "title", "stands_in", "onnx_form")
_FORMULAS = (
    "signature",
    "arguments",
    "weights",
    "flops",
    "sequential",
    "hops",
    "division",
    "max_length",
)


def refuse_wrong_contract(block: BlockType, origin: str) -> None:
    """Raise an error if a block is declared wrongly.

    Args:
        block: the block type; neither it nor its module is changed or imported.
        origin: where the block comes from, for the message, such as `blocks` or
            `package token-shift, entry point token_shift`.

    Raises:
        InputError: a member of the declaration is wrong; the first one is reported.
    """

    def wrong(member: str, problem: str, help_: str, cause: Exception | None = None) -> InputError:
        location = f"{origin}: block '{block.name}@{block.major}', member '{member}'"
        error = InputError(problem, location=location, help=help_)
        error.__cause__ = cause
        return error

    Contract(block, wrong).validate()


Wrong = Callable[..., InputError]
"""Makes an error from the member, the problem, the help, and the exception behind it."""


class Contract:
    """The validation of one block."""

    def __init__(self, block: BlockType, wrong: Wrong) -> None:
        """Store the block and the function that makes its errors."""
        self.block, self.wrong = block, wrong

    def validate(self) -> None:
        """Validate every member; the later ones are evaluated on the results of the earlier.

        Raises:
            InputError: a member is wrong.
        """
        self._header()
        params = self._params()
        wired = frozenset(self.block.example_inputs)
        for ports in (frozenset[str](), wired):
            self._ports(self._signature(params, ports))
        unwired = self._signature(params, frozenset())
        if not wired:
            wired = frozenset(port.name for port in unwired.inputs if not port.optional)
        signature = self._signature(params, wired)
        self._ports(signature)
        signature = self._typed(params, signature)
        bound = self._bound(signature)
        self._unbound_names(signature, bound)
        self._weighs(signature)
        self._dropout()
        refuse_wrong_formulas(self.block, BlockUse(params, signature, bound), self.wrong)

    def _header(self) -> None:
        """Refuse malformed values of the members that are plain data."""
        block, wrong = self.block, self.wrong
        for member in _TEXTS:
            value = getattr(block, member)
            if not isinstance(value, str):
                raise wrong(member, f"{value!r:.60} is not a string", f"set {member}='...'")
        if not _NAME.fullmatch(block.name):
            problem = f"'{block.name:.70}' is not a name"
            raise wrong("name", problem, "use at most 64 letters, digits and '_', a letter first")
        if type(block.major) is not int or block.major < 1:
            problem = f"the version is {block.major!r:.60}, not a whole number of 1 or more"
            raise wrong("major", problem, f"set major=1; specs then write '{block.name}@1'")
        for member, among in (("family", Family), ("role", Role)):
            value, allowed = (
                getattr(block, member),
                [choice for choice in typing.get_args(among) if choice],
            )
            if value not in typing.get_args(among):
                help_ = did_you_mean(str(value), allowed) or f"known: {', '.join(allowed)}"
                raise wrong(member, f"{value!r:.60} is unknown", help_)
        if block.adapts is not None:
            self._adapts(block.adapts)
        for member in _FORMULAS:
            if not callable(getattr(block, member)):
                problem = f"{getattr(block, member)!r:.60} is not a function"
                raise wrong(member, problem, f"write {member}=lambda ...: ..., or leave it out")
        self._module()
        if block.onnx_form and not re.fullmatch(r"\w+=[\w.]+:\w+", block.onnx_form):
            problem = f"'{block.onnx_form:.60}' is not written 'method=file:function'"
            raise wrong("onnx_form", problem, "write such as 'forward=package.file:function'")

    def _module(self) -> None:
        """Refuse anything but a class or its path, or nothing for a block that is written out."""
        module: Any = self.block.module
        if self.block.written is not None and module:
            problem = "a block that is written out has no module"
            raise self.wrong("module", problem, "leave out 'module', or 'written'")
        if not isinstance(module, str | type):
            problem = f"{module!r:.60} is neither a class nor a text"
            raise self.wrong("module", problem, "write 'package.file:Class', or pass the class")

    def _weighs(self, signature: Signature) -> None:
        """Refuse the ports of `weight` if they are not names, or if the block is not a loss."""
        ports: Any = self.block.weighs
        if not isinstance(ports, tuple) or not all(isinstance(port, str) for port in ports):
            problem = f"{ports!r:.60} is not a tuple of names of ports"
            raise self.wrong("weighs", problem, "write such as weighs=('labels', 'mask')")
        first = signature.outputs[0]
        may_be = self.block.written is not None  # the kind of its result may be a param
        if ports and first.type.kind != "loss" and not may_be:
            problem = f"the first output, '{first.name}', is not of the kind loss"
            raise self.wrong("weighs", problem, "only a loss counts its items; leave 'weighs' out")

    def _dropout(self) -> None:
        """Refuse probabilities of dropout that are not params."""
        names: Any = self.block.dropout
        fields = self.block.params.model_fields
        if not isinstance(names, tuple) or not all(name in fields for name in names):
            problem = f"{names!r:.60} is not a tuple of names of params"
            raise self.wrong("dropout", problem, "write such as dropout=('dropout',)")

    def _adapts(self, adapts: Any) -> None:
        """Refuse anything but a pair of kinds of values."""
        help_ = f"give a pair such as ('mask', 'bias'), of the kinds {', '.join(KINDS)}"
        if not isinstance(adapts, tuple) or len(adapts) != 2:  # noqa: PLR2004 - a pair
            raise self.wrong("adapts", f"{adapts!r:.60} is not a pair of kinds", help_)
        for kind in adapts:
            if kind not in KINDS:
                raise self.wrong("adapts", f"{kind!r:.60} is not a kind of value", help_)

    def _params(self) -> BaseModel:
        """Return the example's params, after validating their class."""
        block, wrong = self.block, self.wrong
        kind: Any = block.params
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            problem = f"{kind!r:.60} is not a class of params"
            raise wrong("params", problem, "give a subclass of weft.Params, or leave it out")
        where = f"class {block.params.__qualname__}"
        try:
            schema = block.params.model_json_schema()
        except (PydanticUserError, TypeError) as error:
            problem = f"a field of {where} has a type that JSON cannot hold: {_first(error)}"
            help_ = "use numbers, strings, booleans, lists, or the types of weft.blocks.params"
            raise wrong("params", problem, help_, error) from error
        for name, field in schema.get("properties", {}).items():
            if not field.keys() - {"title", "description", "default"}:
                problem = f"the field '{name}' of {where} has no type, so no value is refused"
                help_ = "give it a type that validates, such as int, or Count of weft.blocks.params"
                raise wrong("params", problem, help_)
        try:
            written = json.dumps(dict(block.example))
        except (TypeError, ValueError) as error:
            help_ = "write params as a spec does: numbers, strings, booleans, lists, objects"
            raise wrong("example", f"it is not JSON: {_first(error)}", help_, error) from error
        try:
            return block.params.model_validate_json(written, strict=True)
        except ValidationError as error:
            raise self._example_error(error, where) from error
        except Exception as error:
            help_ = "raise ValueError in validators; other exceptions stop the checker"
            raise wrong("params", f"{where} {_raised(error)}", help_, error) from error

    def _example_error(self, error: ValidationError, where: str) -> InputError:
        """Return the error for an example that the class of params refuses."""
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "missing":
            problem = f"the field '{name}' of {where} is required, and the example has no value"
            help_ = f"add example={{'{name}': ...}} with a small valid value, or give it a default"
            return self.wrong("example", problem, help_, error)
        if first["type"] == "extra_forbidden":
            problem = f"{where} has no field '{name}'"
            help_ = did_you_mean(name, self.block.params.model_fields) or "remove it"
            return self.wrong("example", problem, help_, error)
        problem = f"{where} refuses the example: {f'{name!r} ' if name else ''}{describe(first)}"
        return self.wrong("example", problem, "give small valid params", error)

    def _signature(self, params: BaseModel, wired: frozenset[str]) -> Signature:
        """Return the signature for some wired ports."""
        ports = f"the wired ports {{{', '.join(sorted(wired))}}}"
        try:
            signature: Any = self.block.signature(params, wired)
        except TypeTextError as error:
            help_ = "write ports as in port('x', 'f[b t d_model]'); ValueType takes no text"
            raise self.wrong("signature", f"a port: {error}", help_, error) from error
        except Exception as error:
            problem = f"with the params of the example and {ports}, it {_raised(error)}"
            help_ = "write signature=lambda params, wired: Signature(...), for any wired ports"
            raise self.wrong("signature", problem, help_, error) from error
        if not isinstance(signature, Signature):
            problem = f"it returns {type(signature).__name__}, not a Signature"
            raise self.wrong("signature", problem, "return weft.Signature(inputs=..., outputs=...)")
        return signature

    def _typed(self, params: BaseModel, signature: Signature) -> Signature:
        """Return the signature for the types of the example's wires, where it depends on them."""
        if self.block.typed is None:
            return signature
        try:
            types = {name: parse_type(t, {})[0] for name, t in self.block.example_inputs.items()}
            typed = self.block.typed(params, types)
        except Exception as error:
            problem = f"with the params and wires of the example, it {_raised(error)}"
            raise self.wrong(
                "typed", problem, "return a Signature for these types", error
            ) from error
        self._ports(typed)
        return typed

    def _ports(self, signature: Signature) -> None:
        """Refuse ports and slots that generated code could not name or call."""
        wrong = self.wrong
        taken = _STEPPING if self.block.steps else frozenset[str]()
        for side in ("inputs", "outputs"):
            ports = getattr(signature, side)
            if not isinstance(ports, tuple):
                help_ = f"write {side}=(port(...),), with a comma after a single port"
                raise wrong("signature", f"'{side}' is {type(ports).__name__}, not a tuple", help_)
            for port in ports:
                self._port(port, side, taken if side == "inputs" else frozenset())
            _refuse_twice([port.name for port in ports], side, wrong)
        if not signature.outputs:
            raise wrong("signature", "it has no outputs", "add outputs=(port('y', ...),)")
        if all(port.optional for port in signature.outputs):
            first = signature.outputs[0].name
            problem = f"the output '{first}' is optional, and there is no required one"
            raise wrong("signature", problem, "remove '?' from one of the outputs")
        self._slots(signature.slots, taken)
        for axis, behavior in signature.behavior.items():
            if behavior not in typing.get_args(Behavior):
                problem = f"the behavior on axis '{axis}' is {behavior!r:.60}"
                help_ = did_you_mean(str(behavior), typing.get_args(Behavior))
                raise wrong("signature", problem, help_)

    def _slots(self, slots: tuple[Any, ...], taken: frozenset[str]) -> None:
        """Refuse slots that generated code could not name, or whose ports are wrong."""
        wrong = self.wrong
        for slot in slots:
            if not isinstance(slot, Slot):
                problem = f"{slot!r:.60} is not a Slot"
                raise wrong("signature", problem, "write slots=(Slot('f', input, output),)")
            if not _is_argument(slot.name):
                problem = f"the slot '{slot.name}' cannot be an argument of the module"
                raise wrong("signature", problem, "give the slot another name")
            self._port(slot.input, "slots", taken)
            for port in slot.returns:
                self._port(port, "slots", frozenset())

    def _port(self, port: Any, side: str, taken: frozenset[str]) -> None:
        """Refuse a port without a valid name and type."""
        if not isinstance(port, Port) or not isinstance(port.type, ValueType):
            problem = f"'{side}' has {port!r:.60}, which is not a port"
            raise self.wrong("signature", problem, "write port('x', 'f[b t d_model]')")
        if not _is_argument(port.name) or port.name in taken:
            problem = f"the port '{port.name}' cannot be an argument of the module"
            help_ = "give it a name of letters, digits and '_' that Python and 'step' do not use"
            raise self.wrong("signature", problem, help_)
        if port.type.kind not in KINDS:
            problem = f"the port '{port.name}' has the unknown kind '{port.type.kind}'"
            raise self.wrong("signature", problem, did_you_mean(port.type.kind, KINDS))

    def _bound(self, signature: Signature) -> Bound:
        """Return what the names of the ports stand for, in the example or in a sample."""
        block, bound = self.block, Bound()
        ports = {port.name: port for port in signature.inputs}
        for name, text in block.example_inputs.items():
            if name not in ports and not signature.slots:
                help_ = did_you_mean(name, ports) or "remove it"
                raise self.wrong("example_inputs", f"there is no input port '{name}'", help_)
            try:
                type_, _ = parse_type(text, {})
            except (TypeTextError, TypeError) as error:
                help_ = "write types as a spec does, such as 'f[B T 8]'"
                raise self.wrong("example_inputs", f"'{name}': {error}", help_, error) from error
            result = fit(ports[name].type, type_, bound, {}) if name in ports else bound
            if isinstance(result, Misfit):
                problem = f"'{name}' is {type_}, which does not fit the port: {result.problem}"
                raise self.wrong("example_inputs", problem, f"give a value of type {result.detail}")
            bound = result
        if block.example_inputs:
            missing = [p.name for p in signature.inputs if not p.optional]
            for name in (name for name in missing if name not in block.example_inputs):
                help_ = f"add '{name}': '{ports[name].type}' with sizes, such as 'f[B T 8]'"
                problem = f"the required port '{name}' is missing"
                raise self.wrong("example_inputs", problem, help_)
        else:
            bound = _sample(signature)
        for name, other in signature.same.items():
            if name not in bound and other in bound:
                bound[name] = bound[other]
        return bound

    def _unbound_names(self, signature: Signature, bound: Bound) -> None:
        """Refuse names in types that no input port binds."""
        if signature.slots:
            params = self.block.params.model_validate(dict(self.block.example))
            bound = {**self.block.slot_sizes(params, widths(signature, bound)), **bound}
        names = ", ".join(sorted(bound)) or "none"
        types = [(f"the output '{port.name}'", port.type) for port in signature.outputs]
        types += [
            (f"the slot '{slot.name}'", entry.type)
            for slot in signature.slots
            for entry in (slot.input, *slot.others, *slot.more)
        ]
        for what, type_ in types:
            for name in sorted(free_names(type_) - bound.keys()):
                problem = f"{what} has the type {type_}, but no wired input binds '{name}'"
                help_ = (
                    f"use a name of an input, or Signature(same={{'{name}': ...}}); bound: {names}"
                )
                raise self.wrong("signature", problem, help_)
            resolved = substitute(type_, bound)
            for axis in (*resolved.axes, resolved.size):
                if isinstance(axis, int) and axis < 1:
                    problem = f"{what} has the type {type_}, whose size is {axis} in the example"
                    raise self.wrong("signature", problem, "sizes are 1 or more")
        every = {name for port in signature.inputs for name in free_names(port.type)}
        every |= {name for port in signature.outputs for name in free_names(port.type)}
        for name in signature.behavior:
            if name not in every:
                problem = f"'behavior' names the axis '{name}', which no port has"
                help_ = did_you_mean(name, every) or f"axes: {', '.join(sorted(every))}"
                raise self.wrong("signature", problem, help_)
        for name, other in signature.same.items():
            if other not in every:
                problem = f"'same' makes '{name}' equal to '{other}', which no port has"
                raise self.wrong("signature", problem, did_you_mean(other, every))


def _sample(signature: Signature) -> Bound:
    """Return bindings for a block without `example_inputs`: sizes for widths, axes for the rest."""
    required = [port.type for port in signature.inputs if not port.optional]
    free = {name for type_ in required for name in free_names(type_)}
    widths = {
        name
        for type_ in required
        for part in (*(type_.axes[-1:] if type_.kind == "f" else ()), type_.size)
        for name in (names_of(part) if part is not None else ())
    }
    bound: Bound = {name: _WIDTH if name in widths else name.capitalize() for name in free}
    return bound | ({"...": ("B", "T")} if "..." in free else {})


def _is_argument(name: Any) -> bool:
    """Return whether a name can be a parameter of a method."""
    return (
        isinstance(name, str)
        and _NAME.fullmatch(name) is not None
        and not keyword.iskeyword(name)
        and name != "self"
    )


def _refuse_twice(names: list[str], side: str, wrong: Wrong) -> None:
    for name in names:
        if names.count(name) > 1:
            problem = f"'{side}' has two ports '{name}'"
            raise wrong("signature", problem, "give each port its own name")


def _first(error: Exception) -> str:
    """Return the first line of an exception's text, shortened."""
    return f"{str(error).partition(chr(10))[0]:.120}"


def _raised(error: Exception) -> str:
    """Return what a function of a block raised."""
    return f"raises {type(error).__name__}: {_first(error)}"
