"""Settings of the optimizers: their options, their state, and groups of weights; no torch.

To register an optimizer, add a line to `SHIPPED`.  Installed packages add optimizers through the
entry-point group `weft.optimizers`; a run can never name code.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    ValidationInfo,
    model_validator,
)
from pydantic import ValidationError as Invalid
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ....specs.findings import InputError, did_you_mean
from ....specs.wording import (
    Keyed,
    SettingError,
    alternatives,
    form_findings,
    own_errors,
    refuse,
)
from ...checkpoint.curve import BY_FORM, CurvePiece, OfPieces
from ...data.settings import Settings
from ...system.plugins import Named, Plugins, Selected, dumped
from .schedule import Rate

if TYPE_CHECKING:
    import torch

    from ....graphs.passes.widths import WidthGrowth

_Share = Annotated[float, Field(ge=0, lt=1)]
Momentum = Annotated[Annotated[_Share, Tag("number")] | OfPieces, BY_FORM]
"""A number from 0 below 1, or the pieces in which it changes."""
Decay = Annotated[Annotated[float, Field(ge=0), Tag("number")] | OfPieces, BY_FORM]
"""A number from 0, or the pieces in which it changes."""
_OF_THE_RUN = ("clip", "groups")
"""Settings of an optimizer that a group cannot change."""


class OptimizerGroup(Settings, Keyed):
    """Weights with an optimizer, a rate or options of their own.

    Besides the settings below, a group may have every option of its optimizer.
    """

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    select: str
    """Which weights: parts as in `freeze`, such as `model.encoder.*` or `**[use=embedding@1]`, or
    weights themselves, such as `**.bias`; `[dim=2]` at the end keeps those with two axes."""
    except_: tuple[str, ...] = Field(default=(), alias="except")
    """Selections of weights that do not belong to it."""
    rate: Rate | None = None
    """Its rate where the schedule is at its peak; `null` is the peak of the schedule."""
    factor: Rate | None = None
    """Instead of `rate`: its rate as a multiple of the peak of the schedule."""
    type: str | None = None
    """Its optimizer; `null` is that of all weights, with the same options."""

    @property
    def options(self) -> dict[str, Any]:
        """Its options by name, as written."""
        return self.__pydantic_extra__ or {}

    @classmethod
    def keyed(cls) -> Mapping[str, Any]:
        """Return the annotations of the options of all optimizers."""
        return {
            name: Annotated[field.annotation, field, *field.metadata]
            for form in OPTIMIZERS.forms().values()
            for name, field in form.model_fields.items()
            if name not in (*_OF_THE_RUN, "type")
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema, with the options of all optimizers."""
        written = handler.resolve_ref_schema(handler(schema))
        properties = written["properties"]
        properties["type"] = {**properties["type"], "enum": [*OPTIMIZERS.names(), None]}
        for form in OPTIMIZERS.forms().values():
            options = _option_schemas(form, handler)
            properties.update({n: o for n, o in options.items() if n not in properties})
        written["additionalProperties"] = False
        return written


def _option_schemas(
    form: type[OptimizerSettings], handler: GetJsonSchemaHandler
) -> dict[str, JsonSchemaValue]:
    """Return the JSON Schemas of the options of an optimizer."""
    options = {}
    for name, field in form.model_fields.items():
        if name not in (*_OF_THE_RUN, "type"):
            option: Any = Annotated[field.annotation, field]
            written = handler(TypeAdapter(option).core_schema)
            written.pop("default", None)
            options[name] = {**written, "description": field.description or ""}
    return options


class OptimizerSettings(Named, ABC):
    """An optimizer: its fields are its options, and `make` returns it.

    An option whose annotation is a `Curve` may change over the updates: before each update, its
    value is written to the parameter groups under its name.
    """

    fused: ClassVar[bool] = False
    """Whether torch has a fused update of it, which is 4 times as fast on a CPU: then `make` gets
    groups with `fused`."""
    elementwise: ClassVar[bool] = False
    """Whether each entry of a weight is updated by itself, whatever the others are: then processes
    that hold shards of a weight update these; for others, each process updates it all."""

    weight_decay: Decay = 0.0
    """Weight decay of matrices; vectors (norms, biases) have none, except in a group that sets
    it."""
    clip: float | None = Field(default=None, gt=0)
    """Maximum Euclidean norm of the gradients of all parameters; `null` disables clipping."""
    groups: tuple[OptimizerGroup, ...] = ()
    """Groups of weights with an optimizer, a rate or options of their own."""

    @abstractmethod
    def make(self, groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimizer with rate 0; the rate of each group is set before each update.

        Args:
            groups: parameter groups of torch, with `params` and `weight_decay`.
        """

    @abstractmethod
    def state(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        """Return the names and shapes of the tensors that it keeps for a weight.

        They are what `torch.optim.Optimizer.state` has for it after the first update; checkpoints
        store them.
        """

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Return whether it updates weights of a shape."""
        del shape
        return True

    def width_factor(self, growth: WidthGrowth) -> float:
        """Return the factor of the rate of a weight in a wider model, which has the same effect.

        The default is that of an optimizer whose updates have the same size whatever the size of
        the gradient is, such as Adam.  Source: Yang et al. 2022, table 3, arXiv 2203.03466.

        Args:
            growth: how many times more inputs and outputs the weight has than in the base model.
        """
        return 1.0 / growth.fan_in / growth.multiplier

    def curves(self) -> dict[str, tuple[CurvePiece, ...]]:
        """Return the options that change over the updates, by name."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {
            name: value
            for name, value in values.items()
            if isinstance(value, tuple) and value and isinstance(value[0], CurvePiece)
        }

    @model_validator(mode="after")
    def _check_groups(self, info: ValidationInfo) -> Self:
        """Refuse groups with settings that their optimizer does not have."""
        refuse(self._wrong_groups(), info)
        return self

    def _wrong_groups(self) -> Iterator[SettingError]:
        for number, group in enumerate(self.groups):
            at = ("groups", number)
            extra = group.options
            for key in _OF_THE_RUN:
                if key in extra:
                    problem = f"a group has no '{key}'"
                    help_ = "set it for all weights, outside of 'groups'"
                    yield SettingError(problem, *at, key, help_=help_)
            if group.rate is not None and group.factor is not None:
                problem = "'rate' and 'factor' both set the rate of the group"
                yield SettingError(problem, *at, "factor", help_="remove one of both")
            if group.type is not None and group.type not in OPTIMIZERS.names():
                problem = f"no optimizer '{group.type:.100}'"
                help_ = did_you_mean(group.type, OPTIMIZERS.names())
                yield SettingError(problem, *at, "type", help_=help_)
                continue
            try:
                self.of_group(group)
            except InputError as error:
                yield SettingError(error.problem, *at, "type", help_=error.help)
            except Invalid as invalid:
                for keys, problem, help_ in _wrong_options(invalid, group.type or self.type, extra):
                    yield SettingError(problem, *at, *keys, help_=help_)

    def of_group(self, group: OptimizerGroup) -> OptimizerSettings:
        """Return the settings of the optimizer of a group.

        Raises:
            ValidationError: the group has an option that its optimizer does not have.
            InputError: there is no such optimizer, or its package is broken.
        """
        extra = {k: v for k, v in group.options.items() if k not in _OF_THE_RUN}
        kind = group.type or self.type
        inherited: dict[str, Any] = {}
        if kind == self.type:
            inherited = self.model_dump(
                mode="json", by_alias=True, exclude=set(_OF_THE_RUN), exclude_unset=True
            )
        return OPTIMIZERS.settings(kind, {**inherited, "type": kind, **extra})


def _wrong_options(
    invalid: Invalid, kind: str, options: Mapping[str, Any]
) -> Iterator[tuple[list[str], str, str]]:
    """Yield the keys, the problem and the help of each wrong option of a group."""
    forms = OPTIMIZERS.forms()
    written = {"type": kind, **options}
    for error in own_errors(invalid.errors()):
        for finding in form_findings(error, forms[kind], written, ""):
            keys, help_ = finding.at.removeprefix("/").split("/"), finding.help
            owners = [name for name, form in forms.items() if keys[0] in form.model_fields]
            if error["type"] == "extra_forbidden" and owners:
                help_ = f"remove it, or set 'type' to {alternatives(owners)}"
            yield keys, finding.problem, help_


class Adam(OptimizerSettings):
    """Adam with the settings of the paper; weight decay is added to the gradient.

    Source: Kingma & Ba 2015, https://arxiv.org/abs/1412.6980; Vaswani et al. 2017, section 5.3
    """

    fused: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True

    type: Literal["adam"] = "adam"
    betas: tuple[_Share, _Share] = (0.9, 0.98)
    """Decay rates of the running means of the gradient and of its square."""
    eps: float = Field(default=1e-9, gt=0)
    """Added to the denominator (the root of the mean squared gradient) for stability."""

    def make(self, groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimizer."""
        import torch

        fused = all(group["fused"] for group in groups)
        return torch.optim.Adam(groups, lr=0.0, betas=self.betas, eps=self.eps, fused=fused)

    def state(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        """Return the number of updates and both running means."""
        return {"step": (), "exp_avg": shape, "exp_avg_sq": shape}


class AdamW(OptimizerSettings):
    """Adam with weight decay apart from the gradient.

    Source: Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101
    """

    fused: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True

    type: Literal["adamw"] = "adamw"
    betas: tuple[_Share, _Share] = (0.9, 0.98)
    """Decay rates of the running means of the gradient and of its square."""
    eps: float = Field(default=1e-9, gt=0)
    """Added to the denominator (the root of the mean squared gradient) for stability."""

    def make(self, groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimizer."""
        import torch

        fused = all(group["fused"] for group in groups)
        return torch.optim.AdamW(groups, lr=0.0, betas=self.betas, eps=self.eps, fused=fused)

    def state(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        """Return the number of updates and both running means."""
        return {"step": (), "exp_avg": shape, "exp_avg_sq": shape}


class Adafactor(OptimizerSettings):
    """Adafactor, which stores sums of rows and columns only; its rate is relative to each weight.

    Source: Shazeer & Stern 2018, https://arxiv.org/abs/1804.04235
    """

    type: Literal["adafactor"] = "adafactor"

    def make(self, groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimizer."""
        import torch

        return torch.optim.Adafactor(groups, lr=0.0)

    def state(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        """Return the number of updates and the means of squares."""
        if len(shape) <= 1:
            return {"step": (), "variance": shape}
        rows, columns = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        return {"step": (), "row_var": rows, "col_var": columns}

    def width_factor(self, growth: WidthGrowth) -> float:
        """Return the factor of Adam relative to the size of the weight, which scales its rate."""
        return 1.0 / growth.fan_in / (growth.size * growth.multiplier)


class Muon(OptimizerSettings):
    """Muon, whose updates of a matrix change all directions alike; for matrices.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/
    """

    type: Literal["muon"] = "muon"
    momentum: Momentum = 0.95
    """Decay rate of the running sum of gradients."""
    nesterov: bool = True
    """Whether the update looks ahead along the momentum."""
    ns_steps: int = Field(default=5, ge=1, le=99)
    """Steps of the Newton-Schulz iteration that makes an update orthogonal."""
    scale: Literal["adam", "spectral"] = "adam"
    """Size of an update: `adam` is that of Adam, for a common rate (Liu et al. 2025, section 2.2,
    arXiv 2502.16982); `spectral` has the spectral norm 1, times the root of rows by columns if
    there are more rows."""

    def make(self, groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimizer."""
        import torch

        return torch.optim.Muon(
            groups,
            lr=0.0,
            momentum=0.0,
            nesterov=self.nesterov,
            ns_steps=self.ns_steps,
            adjust_lr_fn="match_rms_adamw" if self.scale == "adam" else "original",
        )

    def state(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        """Return the running sum of gradients, which it has also without momentum."""
        return {"momentum_buffer": shape}

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Return whether the weight is a matrix."""
        return len(shape) == 2  # noqa: PLR2004 - rows and columns

    def width_factor(self, growth: WidthGrowth) -> float:
        """Return the factor with which the spectral norm grows with the root of out by in.

        Source: Yang et al. 2023, condition 1, https://arxiv.org/abs/2310.17813
        """
        larger = math.sqrt(max(growth.fan_in, growth.fan_out)) if self.scale == "adam" else 1.0
        return math.sqrt(growth.fan_out / growth.fan_in) / larger / growth.multiplier


class Sgd(OptimizerSettings):
    """Gradient descent with momentum; weight decay is added to the gradient."""

    fused: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True

    type: Literal["sgd"] = "sgd"
    momentum: Momentum = 0.9
    """Factor of the update before, which is added to the gradient."""
    nesterov: bool = False
    """Whether the update looks ahead along the momentum."""

    def make(self, groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimizer."""
        import torch

        momentum = 0.9 if isinstance(self.momentum, tuple) else self.momentum
        fused = all(group["fused"] for group in groups)
        return torch.optim.SGD(
            groups, lr=0.0, momentum=momentum, nesterov=self.nesterov, fused=fused
        )

    def state(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        """Return the update before."""
        return {"momentum_buffer": shape} if self.momentum else {}

    def width_factor(self, growth: WidthGrowth) -> float:
        """Return the factor of an optimizer whose updates are as large as the gradient."""
        return growth.fan_out / growth.fan_in / growth.multiplier**2


OPTIMIZERS: Plugins[OptimizerSettings] = Plugins(
    "optimizer",
    "weft.optimizers",
    OptimizerSettings,  # type: ignore[type-abstract]  # plug-ins are subclasses of it
    {
        "adam": ".optimizers:Adam",
        "adamw": ".optimizers:AdamW",
        "adafactor": ".optimizers:Adafactor",
        "muon": ".optimizers:Muon",
        "sgd": ".optimizers:Sgd",
    },
    __package__,
)
"""All optimizers."""


class _SelectedOptimizer(Selected):
    """Annotation of the optimizer of a run, which is Adam if nothing else is said."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema that validates and dumps an optimizer."""
        del source, handler

        def validated(value: object) -> OptimizerSettings:
            adam = isinstance(value, Mapping) and "type" not in value
            return OPTIMIZERS.validate({"type": "adam", **value} if adam else value)  # type: ignore[dict-item]

        return core_schema.no_info_plain_validator_function(
            validated,
            serialization=core_schema.plain_serializer_function_ser_schema(dumped, info_arg=True),
        )


AnyOptimizer = Annotated[OptimizerSettings, _SelectedOptimizer(OPTIMIZERS)]
"""The optimizer of a run: options of Adam, or an object with `type` and its options."""
