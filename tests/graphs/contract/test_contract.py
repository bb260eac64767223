"""Contracts of plug-in blocks: each wrong declaration is refused with its place and a fix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, field_validator
from weft.blocks.params import Count, Params
from weft.graphs.contract import refuse_wrong_contract
from weft.graphs.ir.block_type import BlockType, Port, Signature, Slot, port
from weft.graphs.ir.value_type import ValueType
from weft.specs.findings import InputError


class SizeParams(Params):
    """Params of a block with one required size."""

    size: Count


class UntypedParams(Params):
    """Params with a field that takes any value."""

    size: Any


class ForeignParams(BaseModel):
    """Params with a field that JSON cannot hold."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    size: Callable[[int], int] = abs


class FailingParams(Params):
    """Params whose validator has a mistake."""

    size: int = 1

    @field_validator("size")
    @classmethod
    def _check(cls, size: int) -> int:
        return size // 0


def one_to_one(inputs: str = "f[b t d]", outputs: str = "f[b t d]", **more: Any) -> Signature:
    """Return a signature with one input and one output."""
    return Signature(inputs=(port("x", inputs),), outputs=(port("y", outputs),), **more)


RIGHT = BlockType(
    name="own",
    doc="A block of this test.",
    source="this test",
    params=SizeParams,
    signature=lambda _, __: one_to_one(behavior={"t": "causal"}),
    weights=lambda arguments: {"weight": (arguments["d"], arguments["size"])},
    flops=lambda arguments, sizes: 2 * sizes["b"] * sizes["t"] * arguments["d"],
    module="torch.nn:Identity",
    example={"size": 2},
    example_inputs={"x": "f[B T 8]"},
)


def slot(name: str = "f", text: str = "f[b t d]") -> Signature:
    """Return a signature with a slot."""
    return one_to_one(slots=(Slot(name, port("x", text), port("y", text)),))


def no_outputs(_: Any, __: Any) -> Signature:
    """Return a signature without outputs."""
    return Signature(inputs=(port("x", "f[...]"),), outputs=())


def twice(_: Any, __: Any) -> Signature:
    """Return a signature with two inputs of one name."""
    return Signature(inputs=(port("x", "f[...]"),) * 2, outputs=(port("y", "f[...]"),))


def not_a_tuple(_: Any, __: Any) -> Signature:
    """Return a signature that lacks a comma."""
    return Signature(inputs=port("x", "f[...]"), outputs=(port("y", "f[...]"),))  # type: ignore[arg-type]


def needs_wired(_: Any, wired: frozenset[str]) -> Signature:
    """Return a signature, but only if a port is wired."""
    return {True: one_to_one()}["x" in wired]


def hostile(arguments: Any, _: Any) -> int:
    """Raise an error of arithmetic."""
    return int(arguments["d"] / 0)


WRONG: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "name": ({"name": "my-block"}, "name", "'my-block' is not a name", "letters, digits"),
    "name of another type": ({"name": 3}, "name", "3 is not a string", "set name="),
    "version": ({"major": 0}, "major", "0, not a whole number", "own@1"),
    "version as text": ({"major": "2"}, "major", "'2'", "own@1"),
    "family": ({"family": "atention"}, "family", "'atention' is unknown", "'attention'"),
    "role": ({"role": "atention"}, "role", "'atention' is unknown", "'attention'"),
    "adapts is one kind": (
        {"adapts": ("f",)},
        "adapts",
        "('f',) is not a pair",
        "('mask', 'bias')",
    ),
    "adapts is a text": ({"adapts": "ids"}, "adapts", "'ids' is not a pair", "('mask', 'bias')"),
    "adapts unknown kinds": ({"adapts": ("f", "z")}, "adapts", "'z' is not a kind", "mask"),
    "weighs is a text": (
        {"weighs": "mask"},
        "weighs",
        "'mask' is not a tuple",
        "('labels', 'mask')",
    ),
    "weighs without a loss": ({"weighs": ("x",)}, "weighs", "'y', is not of the kind", "leave"),
    "dropout is no param": (
        {"dropout": ("x",)},
        "dropout",
        "('x',) is not a tuple",
        "('dropout',)",
    ),
    "module": ({"module": 3}, "module", "3 is neither", "'package.file:Class'"),
    "ONNX form": ({"onnx_form": "forward"}, "onnx_form", "'forward'", "file:function"),
    "params are no class": (
        {"params": SizeParams(size=1)},
        "params",
        "class of params",
        "subclass",
    ),
    "a field has no type": ({"params": UntypedParams}, "params", "'size' of class Unt", "Count"),
    "a field that JSON cannot hold": (
        {"params": ForeignParams},
        "params",
        "JSON cannot hold",
        "numbers",
    ),
    "a validator fails": ({"params": FailingParams}, "params", "ZeroDivisionError", "ValueError"),
    "no example": (
        {"example": {}},
        "example",
        "'size' of class SizeParams is req",
        "{'size': ...}",
    ),
    "wrong example": ({"example": {"size": 0}}, "example", "'size'", "small valid params"),
    "example of another": ({"example": {"size": 1, "siez": 2}}, "example", "'siez'", "'size'"),
    "example is no JSON": ({"example": {"size": {1}}}, "example", "it is not JSON", "numbers"),
    "no signature": ({"signature": None}, "signature", "None is not a function", "lambda"),
    "signature with one parameter": ({"signature": one_to_one}, "signature", "TypeError", "wired"),
    "signature needs a wire": ({"signature": needs_wired}, "signature", "ports {}", "any wired"),
    "signature returns ports": (
        {"signature": lambda _, __: ()},
        "signature",
        "tuple",
        "Signature(",
    ),
    "port type": (
        {"signature": lambda _, __: one_to_one("g[b t d]")},
        "signature",
        "a port: unknown kind 'g'",
        "'f[b t d_model]'",
    ),
    "port without its type": (
        {"signature": lambda _, __: Signature((Port("x", "f[b]"),), ())},  # type: ignore[arg-type]
        "signature",
        "is not a port",
        "port('x'",
    ),
    "port of an unknown kind": (
        {"signature": lambda _, __: Signature((Port("x", ValueType("mas", ("b",))),), ())},
        "signature",
        "unknown kind 'mas'",
        "'mask'",
    ),
    "no outputs": ({"signature": no_outputs}, "signature", "no outputs", "outputs=("),
    "no comma": ({"signature": not_a_tuple}, "signature", "'inputs' is Port", "comma"),
    "two ports of a name": ({"signature": twice}, "signature", "two ports 'x'", "its own name"),
    "optional output": (
        {"signature": lambda _, __: one_to_one(outputs="f[b t d]?")},
        "signature",
        "'y' is optional",
        "remove '?'",
    ),
    "port that step uses": (
        {"steps": True, "signature": lambda _, __: Signature((port("state", "f[b]"),), ())},
        "signature",
        "'state' cannot be an argument",
        "letters, digits",
    ),
    "keyword of Python": (
        {"signature": lambda _, __: Signature((port("in", "f[b]"),), ())},
        "signature",
        "'in' cannot be an argument",
        "letters",
    ),
    "slot that is a keyword": (
        {"signature": lambda _, __: slot("if")},
        "signature",
        "'if'",
        "name",
    ),
    "slot is text": (
        {"signature": lambda _, __: one_to_one(slots=("f",))},
        "signature",
        "'f' is not a Slot",
        "Slot('f'",
    ),
    "axis never bound": (
        {"signature": lambda _, __: one_to_one(outputs="f[b t q]")},
        "signature",
        "no wired input binds 'q'",
        "bound: b, d, t",
    ),
    "axis of a slot never bound": (
        {"signature": lambda _, __: slot(text="f[b t q]")},
        "signature",
        "the slot 'f'",
        "bound: b, d, t",
    ),
    "size that can be 0": (
        {"signature": lambda _, __: one_to_one(outputs="f[b t d-8]")},
        "signature",
        "size is 0",
        "1 or more",
    ),
    "behavior": (
        {"signature": lambda _, __: one_to_one(behavior={"t": "casual"})},
        "signature",
        "'casual'",
        "'causal'",
    ),
    "behavior on no axis": (
        {"signature": lambda _, __: one_to_one(behavior={"s": "causal"})},
        "signature",
        "axis 's'",
        "b, d, t",
    ),
    "same as no axis": (
        {"signature": lambda _, __: one_to_one(same={"d": "dd"})},
        "signature",
        "'dd', which no port has",
        "'d'",
    ),
    "example of an unknown port": (
        {"example_inputs": {"x": "f[B T 8]", "z": "f[B]"}},
        "example_inputs",
        "no input port 'z'",
        "x",
    ),
    "example of another type": (
        {"example_inputs": {"x": "f[B 8]"}},
        "example_inputs",
        "does not fit the port: 2 axes, not 3",
        "f[b t d]",
    ),
    "example that is no type": (
        {"example_inputs": {"x": "f(B T 8)"}},
        "example_inputs",
        "not a type",
        "'f[B T 8]'",
    ),
    "arguments of another size": (
        {"arguments": lambda _, sizes: {"d": sizes["d_model"]}},
        "arguments",
        "reads the size 'd_model'",
        "known: d",
    ),
    "arguments are a list": ({"arguments": lambda _, __: [3]}, "arguments", "[3]", "lambda params"),
    "an argument is an object": (
        {"arguments": lambda params, _: {"params": params}},
        "arguments",
        "not a literal",
        "finite numbers",
    ),
    "an argument is infinite": (
        {"arguments": lambda _, __: {"limit": float("inf")}},
        "arguments",
        "inf, which is not a literal",
        "finite",
    ),
    "weights of another argument": (
        {"weights": lambda arguments: {"weight": (arguments["dd"],)}},
        "weights",
        "reads the argument 'dd'",
        "'d'",
    ),
    "weights without a comma": (
        {"weights": lambda arguments: {"weight": (arguments["d"])}},
        "weights",
        "shape of 'weight' is 8",
        "lambda arguments",
    ),
    "weights of size 0": ({"weights": lambda _: {"weight": (0, 2)}}, "weights", "(0, 2)", "weight"),
    "weights are a list": ({"weights": lambda _: ["weight"]}, "weights", "not a dict", "lambda"),
    "name of a weight": ({"weights": lambda _: {"a b": (1,)}}, "weights", "'a b'", "lambda"),
    "weights raise": (
        {"weights": lambda a: a["d"].size},
        "weights",
        "raises AttributeError",
        "lambda",
    ),
    "cost reads an unknown axis": (
        {"flops": lambda _, sizes: sizes["T"]},
        "flops",
        "reads the axis 'T'",
        "known: b, d, t",
    ),
    "cost is negative": ({"flops": lambda _, sizes: 1 - sizes["t"]}, "flops", "-", "whole number"),
    "cost is a fraction": (
        {"hops": lambda _, sizes: sizes["t"] / 2},
        "hops",
        "not a whole",
        "sizes",
    ),
    "cost that is a text": ({"sequential": lambda _, __: "t"}, "sequential", "'t'", "lambda"),
    "state without tensors": (
        {"state": lambda _, sizes, __: {"keys": sizes["t"]}},
        "state",
        "not tensors by name",
        "StateTensor",
    ),
    "state raises": (
        {"state": lambda arguments, _, __: {"keys": arguments["headz"]}},
        "state",
        "argument 'headz'",
        "",
    ),
    "cost raises": ({"flops": hostile}, "flops", "raises ZeroDivisionError", "every size can be 1"),
    "cost raises for one position": (
        {"flops": lambda _, sizes: 12 // (sizes["t"] - 1)},
        "flops",
        "ZeroDivisionError",
        "can be 1",
    ),
    "maximum length": ({"max_length": lambda _: -1}, "max_length", "-1, not a pos", "lambda"),
    "division": (
        {"division": lambda _: {"heads": 2}},
        "division",
        "not a Division",
        "leave it out",
    ),
    "prunable": ({"prunable": {"rows": {}}}, "prunable", "not a Prunable", "leave it out"),
    "bands": ({"bands": lambda _: ("norm",)}, "bands", "('norm',)", "('norm',), ("),
    "stands in": ({"stands_in": "attention@1 --set h={h}"}, "stands_in", "argument 'h'", "known: "),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_wrong_declaration_is_refused(change: tuple[dict[str, Any], str, str, str]) -> None:
    """The place names the origin, the block and the member; the help names a right form."""
    changes, member, problem, help_ = change
    changes = {"example": {}, **changes} if changes.get("params") is ForeignParams else changes
    block = dataclasses.replace(RIGHT, **changes)

    with pytest.raises(InputError) as caught:
        refuse_wrong_contract(block, "package own, entry point own")

    named = f"block '{block.name}@{block.major}'"
    assert caught.value.location == f"package own, entry point own: {named}, member '{member}'"
    assert problem in caught.value.problem or problem in caught.value.help
    assert help_ in caught.value.help or help_ in caught.value.problem


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"example_inputs": {}},
        {
            "example_inputs": {},
            "signature": lambda _, __: one_to_one("f[... d]", "f[... 2*d]"),
            "flops": lambda _, sizes: sizes["..."],
        },
        {"signature": lambda _, __: slot()},
        {"adapts": ("mask", "bias"), "max_length": lambda _: None},
        {"bands": lambda _: (("norm",), ("dropout",)), "stands_in": "linear@1 --set d_out={d}"},
        {"arguments": lambda _, sizes: {"d": sizes["d"], "size": 1, "nested": [{"a": (1, None)}]}},
    ],
)
def test_a_right_declaration_is_accepted(changes: dict[str, Any]) -> None:
    """With and without example inputs, which a block may leave out."""
    refuse_wrong_contract(dataclasses.replace(RIGHT, **changes), "blocks")


def test_params_that_refuse_the_sample_are_no_mistake() -> None:
    """Without example inputs, nothing is known about the sizes that fit the params."""

    def arguments(params: SizeParams, sizes: Any) -> dict[str, Any]:
        if sizes["d"] % 7:
            msg = "d is not a multiple of 7"
            raise ValueError(msg)
        return {"d": sizes["d"], "size": params.size}

    block = dataclasses.replace(RIGHT, arguments=arguments, example_inputs={})
    refuse_wrong_contract(block, "blocks")
    block = dataclasses.replace(block, example_inputs={"x": "f[B T 8]"})

    with pytest.raises(InputError, match="d is not a multiple of 7") as caught:
        refuse_wrong_contract(block, "blocks")
    assert "member 'example_inputs'" in caught.value.location


def test_a_formula_reads_any_wired_axis() -> None:
    """Also the product of leading axes, for lengths of several and of one position."""
    seen: list[dict[str, int]] = []

    def flops(_: Any, sizes: Any) -> int:
        seen.append(dict(sizes))
        return 0

    block = dataclasses.replace(
        RIGHT, flops=flops, signature=lambda _, __: one_to_one("f[... d]", "f[... d]")
    )
    refuse_wrong_contract(block, "blocks")

    assert seen == [{"...": 6, "d": 8}, {"...": 1, "d": 8}]
