"""Formulas of plug-in blocks: evaluate them on small sizes, and report results that are wrong."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from pydantic import BaseModel

from ..specs.findings import did_you_mean
from .ir.block_type import BlockType, Division, Prunable, Signature, widths
from .ir.lora import Adaptable, prefix_of, without_lora
from .ir.state_tensor import StateTensor
from .ir.value_type import Bound, evaluate, free_names, names_of

_COSTS = ("flops", "sequential", "hops")
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
"""Sizes of the axes of a sample, all different; a second sample has only sizes of 1."""


@dataclass(frozen=True, slots=True)
class BlockUse:
    """One use of a block, on which its formulas are evaluated."""

    params: BaseModel
    signature: Signature
    bound: Bound
    """What the names of the ports stand for."""

    def axes(self) -> dict[str, Any]:
        """Return the axis names that cost formulas may read, with what they stand for."""
        names = {name for port in self.signature.inputs for name in free_names(port.type)}
        return {name: self.bound[name] for name in sorted(names) if name in self.bound}


class _UnknownError(KeyError):
    """A formula read a name that it is not given."""


class _Given(dict[str, Any]):
    """A mapping that notes which of several mappings has no such name."""

    what: str

    def __init__(self, what: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.what = what

    def __missing__(self, name: str) -> Any:
        raise _UnknownError(self.what, name, sorted(self))


def refuse_wrong_formulas(
    block: BlockType, sample: BlockUse, wrong: Callable[..., Exception]
) -> None:
    """Raise an error if a formula of a block fails, or returns what is not a result.

    Args:
        block: the block type.
        sample: a use of it.
        wrong: makes the error from the member, the problem, the help and the cause.
    """
    formulas = _Formulas(block, wrong)
    sizes = widths(sample.signature, sample.bound)
    constructor = formulas.arguments(sample.params, sizes)
    if constructor is None:
        return  # the sample's sizes do not fit the params, which is no mistake of the block
    constructor.update(sample.signature.arguments)
    arguments = without_lora(sample.params, constructor, block.maps)
    _refuse_lost_maps(block, formulas.weights(arguments), sample.signature, wrong)
    for lengths in _lengths(sample):
        for member in _COSTS:
            formulas.cost(member, arguments, lengths)
        formulas.state(arguments, lengths, frozenset(block.example_inputs))
    formulas.limits(arguments)
    formulas.bands(sample.params)
    formulas.value("stands_in", lambda: block.stands_in.format_map(arguments))


def _refuse_lost_maps(
    block: BlockType,
    weights: Mapping[str, tuple[int, ...]],
    signature: Signature,
    wrong: Callable[..., Exception],
) -> None:
    """Refuse linear maps without a matrix, or over axes that the block does not have."""
    names = {name for port in signature.inputs for name in free_names(port.type)}
    for name, axes in block.maps.items():
        weight = f"{prefix_of(name)}weight"
        if len(weights.get(weight, ())) != 2:  # noqa: PLR2004 - a matrix
            problem = f"'{name}' has no matrix '{weight}' in 'weights'"
            raise wrong("maps", problem, "name submodules of the class LinearMap")
        if lost := [axis for axis in axes.split() if axis not in names]:
            problem = f"'{name}' is applied over '{lost[0]}', which no input has"
            raise wrong("maps", problem, "write the names of the axes, such as 'b t'")
    if block.maps and not issubclass(block.params, Adaptable):
        problem = f"LoRA could not be set: {block.params.__qualname__} is not Adaptable"
        raise wrong("maps", problem, "derive the params from weft.graphs.ir.lora.Adaptable too")


def _lengths(sample: BlockUse) -> list[dict[str, int]]:
    """Return sizes of the axes of a sample: different primes, then only 1."""
    axes = sample.axes()
    flat = [
        term for axis in axes.values() for term in (axis if isinstance(axis, tuple) else (axis,))
    ]
    names = sorted({name for axis in flat for name in names_of(axis)})
    primes = {name: _PRIMES[index % len(_PRIMES)] for index, name in enumerate(names)}
    return [
        {
            name: prod(evaluate(term, sizes) for term in axis)
            if isinstance(axis, tuple)
            else evaluate(axis, sizes)
            for name, axis in axes.items()
        }
        for sizes in (primes, dict.fromkeys(names, 1))
    ]


class _Formulas:
    """The formulas of one block."""

    def __init__(self, block: BlockType, wrong: Callable[..., Exception]) -> None:
        self.block, self.wrong = block, wrong

    def value(self, member: str, work: Callable[[], Any]) -> Any:
        """Return the result of a formula; its arguments fit, so any exception is a mistake."""
        try:
            return work()
        except _UnknownError as error:
            what, name, candidates = error.args
            help_ = did_you_mean(name, candidates) or f"the block has no {what} here"
            problem = f"it reads the {what} '{name}', which does not exist"
            raise self.wrong(member, problem, help_, error) from error
        except Exception as error:
            text = str(error).partition("\n")[0]
            problem = (
                f"for the params of the example, it raises {type(error).__name__}: {text:.120}"
            )
            raise self.wrong(member, problem, _FORMS[member], error) from error

    def arguments(self, params: BaseModel, sizes: Mapping[str, int]) -> dict[str, Any] | None:
        """Return the constructor arguments; None if the sizes do not fit the params."""
        result: Any
        try:
            result = self._fitting(params, sizes)
        except ValueError as error:
            if not self.block.example_inputs:
                return None
            problem = f"it refuses the params of 'example' with the sizes of the inputs: {error}"
            raise self.wrong("example_inputs", problem, "make the example fit", error) from error
        if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
            problem = f"it returns {result!r:.60}, not a dict of arguments by name"
            raise self.wrong("arguments", problem, _FORMS["arguments"])
        for name, value in result.items():
            if not name.isidentifier():
                problem = f"it returns the name '{name:.60}', which is not a Python name"
                raise self.wrong("arguments", problem, "return the arguments of the constructor")
            if not _is_literal(value):
                problem = (
                    f"the argument '{name}' is {value!r:.60}, which is not a literal of Python"
                )
                help_ = "return finite numbers, strings, booleans, None, lists, tuples or dicts"
                raise self.wrong("arguments", problem, help_)
        return _Given("argument", result)

    def weights(self, arguments: Mapping[str, Any]) -> Mapping[str, tuple[int, ...]]:
        """Return the weights; refuse those that are not shapes by name."""
        result = self._formula("weights", arguments)
        if not isinstance(result, Mapping):
            raise self.wrong("weights", f"it returns {result!r:.60}, not a dict", _FORMS["weights"])
        for name, shape in result.items():
            parts = name.split(".") if isinstance(name, str) else [""]
            if not all(part.isidentifier() or part.isdigit() for part in parts):
                problem = f"it returns the name {name!r:.60}, which is not the path of a parameter"
                raise self.wrong("weights", problem, _FORMS["weights"])
            if not isinstance(shape, tuple) or not all(_is_count(size) for size in shape):
                problem = (
                    f"the shape of '{name}' is {shape!r:.60}, not a tuple of positive integers"
                )
                raise self.wrong("weights", problem, _FORMS["weights"])
        shapes: Mapping[str, tuple[int, ...]] = result
        return shapes

    def cost(self, member: str, arguments: Mapping[str, Any], lengths: Mapping[str, int]) -> None:
        """Refuse a cost that is not a whole number of 0 or more."""
        result = self._formula(member, arguments, _Given("axis", lengths))
        if type(result) is not int or result < 0:
            at = ", ".join(f"{name} = {size}" for name, size in lengths.items())
            problem = f"it returns {result!r:.60} for {at}, not a whole number of 0 or more"
            raise self.wrong(member, problem, _FORMS[member])

    def state(
        self, arguments: Mapping[str, Any], lengths: Mapping[str, int], wired: frozenset[str]
    ) -> None:
        """Refuse a state that is not tensors by name."""
        if self.block.state is None:
            return
        tensors = self._formula("state", arguments, _Given("axis", lengths), wired)
        values = tensors.values() if isinstance(tensors, Mapping) else [None]
        for tensor in values:
            sizes = tensor.shape if isinstance(tensor, StateTensor) else None
            is_valid = isinstance(sizes, tuple) and all(type(n) is int and n >= 0 for n in sizes)
            if not is_valid:
                problem = f"it returns {tensors!r:.60}, not tensors by name"
                raise self.wrong("state", problem, _FORMS["state"])

    def limits(self, arguments: Mapping[str, Any]) -> None:
        """Refuse results of the remaining formulas."""
        result = self._formula("max_length", arguments)
        if result is not None and not _is_count(result):
            problem = f"it returns {result!r:.60}, not a positive integer or None"
            raise self.wrong("max_length", problem, _FORMS["max_length"])
        result = self._formula("division", arguments)
        if result is not None and not isinstance(result, Division):
            problem = f"it returns {result!r:.60}, not a Division or None"
            raise self.wrong("division", problem, _FORMS["division"])
        prunable: Any = self.block.prunable
        if prunable is not None and not isinstance(prunable, Prunable):
            problem = f"{prunable!r:.60} is not a Prunable"
            raise self.wrong("prunable", problem, "leave it out, or give a Prunable(rows=...)")

    def bands(self, params: BaseModel) -> None:
        """Refuse bands that are not a pair of tuples of texts."""
        if self.block.bands is None:
            return
        bands = self.block.bands
        result = self.value("bands", lambda: bands(params))
        pair = isinstance(result, tuple) and len(result) == 2  # noqa: PLR2004 - below and above
        if not pair or not all(isinstance(text, str) for side in result for text in side):
            problem = f"it returns {result!r:.60}, not the names below and those above the slot"
            raise self.wrong("bands", problem, _FORMS["bands"])

    def _formula(self, member: str, *args: Any) -> Any:
        return self.value(member, lambda: getattr(self.block, member)(*args))

    def _fitting(self, params: BaseModel, sizes: Mapping[str, int]) -> Any:
        """Return the constructor arguments.

        Raises:
            ValueError: the sizes do not fit the params.
        """
        refused: list[ValueError] = []

        def work() -> Any:
            try:
                return self.block.arguments(params, _Given("size", sizes))
            except ValueError as error:
                refused.append(error)

        result = self.value("arguments", work)
        if refused:
            raise refused[0]
        return result


_COST = "write {0}=lambda arguments, sizes: ..., from sizes['t'] and so on; every size can be 1"
_FORMS = {
    "arguments": "write arguments=lambda params, sizes: {'d_model': sizes['d_model'], ...}",
    "weights": "write weights=lambda arguments: {'weight': (arguments['d_model'],)}",
    **{member: _COST.format(member) for member in _COSTS},
    "state": "write state=lambda arguments, sizes, _: {'keys': StateTensor((1, sizes['t'], 8))}",
    "max_length": "write max_length=lambda arguments: arguments['max_length']",
    "division": "write division=lambda arguments: None, or leave it out",
    "bands": "write bands=lambda params: (('norm',), ('dropout',))",
    "stands_in": "write 'attention@1 --set heads={heads}', with arguments in braces",
}
"""Member to the form that it must have."""


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_literal(value: Any) -> bool:
    """Return whether the `repr` of a value, which generated code contains, gives the value back."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
