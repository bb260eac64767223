"""Softmax over a named axis, and other functions that turn scores into weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from ...graphs.ir.block_type import BlockType, MismatchError, Port, Signature, port
from ...graphs.ir.graph import Part
from ...graphs.ir.value_type import ValueType
from ...specs.findings import did_you_mean
from ..params import Params, no_arguments
from .masking import (
    MASK,
    expanded,
    mask_port,
    names_of_mask,
    refuse_idle_names,
    refuse_other_kinds,
    refuse_unknown_names,
)
from .patterns import LEAD, Names, Pattern, aligned, axis_names, lower, port_type

_ALONE = ("squared_relu", "sigmoid")
"""Kinds of which each weight depends on one score."""


class SoftmaxParams(Params):
    """Params of `softmax`."""

    y: str = "... s"
    """The axes of the value, such as `b h t s`."""
    over: str = ""
    """The axis along which the weights compete; by default, the last of `y`."""
    kind: Literal["softmax", "log_softmax", "softmax1", "squared_relu", "sparsemax", "sigmoid"] = (
        "softmax"
    )
    """`softmax1` is exp(x) / (1 + sum exp(x)), which may give no weight to anything; `squared_relu`
    is max(0, x)^2, and does not normalize, nor does `sigmoid`; `sparsemax` is the nearest point of
    the simplex."""
    causal: str = ""
    """The axis whose positions see only their own and earlier ones along `over`, such as `t`;
    empty if they see all."""
    mask: str = ""
    """The axes of the mask, such as `b s`; needed only where the value has one of them twice."""

    @field_validator("y")
    @classmethod
    def _parses(cls, text: str) -> str:
        """Refuse a text that does not name axes; return it with single spaces."""
        return " ".join(axis_names(text))

    @model_validator(mode="after")
    def _names_axes(self) -> Self:
        """Refuse axes that the value does not have."""
        names = axis_names(self.y)
        if not {*names} - {LEAD}:
            msg = f"'{self.y}' names no axis for the weights"
            raise ValueError(msg)
        for what, name in (("over", self.over), ("causal", self.causal)):
            if name and (name not in names or name == LEAD):
                help_ = did_you_mean(name, names)
                msg = f"'{what}' is '{name}', which is no axis of '{self.y}'"
                raise ValueError(f"{msg}; {help_}" if help_ else msg)
        if self.causal and self.causal == self.over_name:
            msg = (
                f"'causal' and 'over' are both '{self.causal}'; 'causal' is the axis of the queries"
            )
            raise ValueError(msg)
        refuse_unknown_names(self.mask, names, "'mask'")
        return self

    @property
    def over_name(self) -> str:
        """The axis along which the weights compete."""
        return self.over or self.y.split()[-1]


def _signature(params: SoftmaxParams, _: frozenset[str]) -> Signature:
    """Return the ports before the types of the wires are known."""
    del params
    return Signature(
        inputs=(port("x", "f[...]", "scores"), MASK),
        outputs=(port("y", "f[...]", "weights"),),
    )


def _typed(params: SoftmaxParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports for the types of the wires."""
    refuse_other_kinds(types["x"], "softmax@1")
    pattern = _pattern(params, types)
    axes = tuple(map(lower, pattern.result))
    inputs = [Port("x", ValueType(types["x"].kind, axes), doc="scores")]
    inputs += [mask_port(of_mask) for of_mask in pattern.values[1:]]
    pointwise = params.causal or params.kind in _ALONE
    return Signature(
        inputs=tuple(inputs) if len(inputs) > 1 else (*inputs, MASK),
        outputs=(Port("y", ValueType("f", axes), doc="weights; 0 where the mask is false"),),
        earlier=_earlier(params),
        behavior={} if pointwise else {lower(params.over_name): "full"},
    )


def _pattern(params: SoftmaxParams, types: Mapping[str, ValueType]) -> Pattern:
    """Return the names of the axes of the value, of its mask if it is wired, and of the result."""
    written = axis_names(params.y)
    refuse_idle_names(params.mask, types)
    port_type(written, types["x"], "x")
    names = expanded(written, types["x"])
    if params.causal:
        over, queries = (
            types["x"].axes[names.index(name)] for name in (params.over_name, params.causal)
        )
        if over != queries:
            msg = f"'{params.causal}' is {queries}, but '{params.over_name}' is {over}"
            help_ = "remove 'causal', or give it an axis with the same positions"
            raise MismatchError("T03", msg, port="x", help=help_)
    values = [names]
    if "mask" in types:
        values.append(names_of_mask(params.mask, names, types["x"], types["mask"]))
    lead = Pattern(tuple(values), names[: min(map(names.index, _fixed(params)))])
    lead = lead.with_lead([types[name] for name in ("x", "mask") if name in types])
    skipped = len(names) - len(lead.values[0])
    return Pattern(lead.values, (LEAD, *names[skipped + 1 :]) if LEAD in lead.values[0] else names)


def _fixed(params: SoftmaxParams) -> Names:
    """Return the names of the axes that are not computed separately."""
    return (params.over_name, params.causal) if params.causal else (params.over_name,)


def _earlier(params: SoftmaxParams) -> dict[str, tuple[str, str]]:
    """Return the axes of queries and keys, if weights of later keys are 0; their logs are not."""
    if not params.causal or params.kind == "log_softmax":
        return {}
    return {"y": (lower(params.causal), lower(params.over_name))}


def _written(part: Part) -> list[str]:
    """Return the lines of `forward`: the mask, then the weights."""
    params: Any = part.params
    pattern = _pattern(params, part.inputs)
    names = pattern.result
    over = names.index(params.over_name) - len(names)
    lines, masks = list[str](), list[str]()
    if params.causal:
        query = names.index(params.causal) - len(names)
        lines += _later(query, over, aligned(names, tuple(n for n in names if n in _fixed(params))))
        masks.append("later")
    if len(pattern.values) > 1:
        masks.append(f"~mask{aligned(names, pattern.values[1])}")
    weights = _weights(params.kind, over)
    if not masks:
        return [f"return {weights}"]
    if masks == ["later"]:  # each query sees at least itself
        return [*lines, "x = x.masked_fill(later, -torch.inf)", f"return {weights}"]
    lines.append(f"excluded = {' | '.join(masks)}")
    lines.append("x = x.masked_fill(excluded, torch.finfo(x.dtype).min)")
    nothing = "-torch.inf" if params.kind == "log_softmax" else "0.0"
    return [*lines, f"return {weights}.masked_fill(excluded, {nothing})"]


def _later(query: int, over: int, index: str) -> list[str]:
    """Return the lines that mark the later positions; a step has only the last queries."""
    sizes = f"x.size({query}), x.size({over})"
    lines = [f"later = torch.ones({sizes}, dtype=torch.bool, device=x.device)"]
    turned = ".T" if over < query else ""
    lines += [f"later = later.triu(x.size({over}) - x.size({query}) + 1){turned}{index}"]
    return lines


_TORCH = ("softmax", "log_softmax")
"""Kinds that are functions of torch; the others are those of `blocks/kernels/softmax.py`."""


def _weights(kind: str, dim: int) -> str:
    """Return the call that turns x into weights."""
    return f"{'torch.' if kind in _TORCH else ''}{kind}(x, {dim})"


def _helpers(part: Part) -> tuple[str, ...]:
    """Return the function that `forward` calls."""
    params: Any = part.params
    return () if params.kind in _TORCH else (f".kernels.softmax:{params.kind}",)


SOFTMAX = BlockType(
    name="softmax",
    title="{kind}",
    mixes="",
    doc="Turn scores into weights along one axis; y_s = exp(x_s) / sum_r exp(x_r), without masked "
    "elements.",
    source="softmax: Bridle 1990; softmax1: Miller 2023, Attention is off by one; squared ReLU: "
    "Hua et al. 2022, section 3; sparsemax: Martins and Astudillo 2016, section 2; sigmoid: "
    "Ramapuram et al. 2024, section 2",
    params=SoftmaxParams,
    signature=_signature,
    typed=_typed,
    arguments=no_arguments,
    written=_written,
    helpers=_helpers,
    example={"y": "b t d", "over": "t"},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
