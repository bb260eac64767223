"""Optimizers: construction, rates, gradient clipping and serialization of their state.

Not here: their settings (`optimizers.py`), the schedule (`schedule.py`), files
(`../../checkpoint/checkpoint.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ....specs.findings import InputError
from ...checkpoint.curve import curve_at
from ..distributed.sharding import local_shard, shards_like

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ....graphs.passes.widths import WidthGrowth
    from .groups import WeightGroup
    from .optimizers import OptimizerSettings

_FUSED = frozenset({"cpu", "cuda", "mps", "xpu"})
"""Devices with a fused update in torch, which is 4 times as fast on a CPU."""

EMA = "ema"
"""Name of the moving average in the state of an optimizer, and of its decay in a group."""
_PEAK, _CURVES, _SETTINGS = "peak", "curves", "settings"
"""Keys of a parameter group: its highest rate, its changing options, and its settings."""
_DECAY = "weight_decay"
_OF_SCALER = ("grad_scale", "found_inf")


def make_optimizer(
    module: nn.Module, groups: Sequence[WeightGroup], peak: float, ema: float | None = None
) -> Optimizers:
    """Make the optimizers of the parameters of a module that require gradients.

    A parameter shared by several modules is updated once.  The learning rate starts at 0:
    call `set_rates` before each update.

    Args:
        module: must already be on the device where it will be trained.
        groups: which weights are updated how; together they have every weight that trains.
        peak: highest rate of the schedule.
        ema: decay of an exponential moving average of the weights, which is part of the state of
            the optimizer, so that checkpoints have it; None keeps no average.

    Raises:
        InputError: no parameter of the module requires a gradient.
    """
    every = dict(module.named_parameters(remove_duplicate=False))
    copies: dict[nn.Parameter, nn.Parameter] = {}
    parts = []
    for group in groups:
        trainable = {path: every[path] for path in group.weights if every[path].requires_grad}
        if not group.optimizer.elementwise:
            sharded = {p: p.detach() for p in trainable.values()}
            copies |= {
                parameter: nn.Parameter(tensor.full_tensor())
                for parameter, tensor in sharded.items()
                if isinstance(tensor, DTensor)
            }
        if torch_groups := list(_torch_groups(group, trainable, copies, peak)):
            parts.append(group.optimizer.make(torch_groups))
    if not parts:
        msg = "nothing to optimize: no parameter of the model requires a gradient"
        raise InputError(msg)
    optimizer = Optimizers(parts, copies)
    if ema is not None:
        for torch_group in optimizer.param_groups:
            torch_group[EMA] = ema
        optimizer.register_step_post_hook(_move_average)
    return optimizer


def _torch_groups(
    group: WeightGroup,
    trainable: Mapping[str, nn.Parameter],
    copies: Mapping[nn.Parameter, nn.Parameter],
    peak: float,
) -> Iterator[dict[str, Any]]:
    """Yield the parameter groups of torch: a fused update needs all tensors on one mesh."""
    settings = group.optimizer
    fused = all(p.device.type in _FUSED and p.is_floating_point() for p in trainable.values())
    members: dict[Any, list[nn.Parameter]] = {}
    for path, parameter in trainable.items():
        updated = copies.get(parameter, parameter)
        mesh = updated.device_mesh if isinstance(updated, DTensor) else None
        decays = group.decays_all or parameter.dim() > 1
        members.setdefault((decays, group.peak(path, peak), mesh), []).append(updated)
    curves = settings.curves()
    for (decays, highest, _), parameters in members.items():
        changing = {name: curve for name, curve in curves.items() if decays or name != _DECAY}
        yield {
            "params": parameters,
            _DECAY: 0.0 if not decays or _DECAY in curves else settings.weight_decay,
            _PEAK: highest,
            _CURVES: changing,
            _SETTINGS: settings,
            **({"fused": fused} if settings.fused else {}),
        }


class Optimizers(torch.optim.Optimizer):
    """Several optimizers as one with a common state."""

    def __init__(
        self,
        parts: Sequence[torch.optim.Optimizer],
        copies: Mapping[nn.Parameter, nn.Parameter],
    ) -> None:
        """Take over the parameter groups of all optimizers.

        Args:
            parts: the optimizers.
            copies: sharded parameters to the complete ones that are updated in their place.
        """
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts, self.copies = tuple(parts), dict(copies)
        self._checked = False
        for part in parts:
            part.state = self.state
        # The scaler of float16 then leaves it to the fused updates to skip one that overflows.
        if all(getattr(part, "_step_supports_amp_scaling", False) for part in parts):
            self._step_supports_amp_scaling = True

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Run the update of all optimizers.

        Raises:
            InputError: an optimizer of another package keeps another state than it declares.
        """
        del closure
        for sharded, complete in self.copies.items():
            if isinstance(gradient := sharded.grad, DTensor):
                complete.grad = gradient.full_tensor()
        # The scaler of float16 sets these, from which fused updates know whether to skip one.
        scales = {name: getattr(self, name) for name in _OF_SCALER if hasattr(self, name)}
        for part in self.parts:
            vars(part).update(scales)
            part.step()
        with torch.no_grad():
            for sharded, complete in self.copies.items():
                sharded.copy_(shards_like(complete.detach(), sharded))
        if not self._checked:
            self._checked = True
            self._refuse_undeclared()

    def _refuse_undeclared(self) -> None:
        """Refuse state that a checkpoint could not store, or restore."""
        for group in self.param_groups:
            settings: OptimizerSettings = group[_SETTINGS]
            for parameter in group["params"]:
                state = {k: v for k, v in self.state.get(parameter, {}).items() if k != EMA}
                shapes = {k: tuple(v.shape) for k, v in state.items() if isinstance(v, Tensor)}
                declared = dict(settings.state(tuple(parameter.shape)))
                if state and (shapes.keys() != state.keys() or shapes != declared):
                    raise InputError(
                        f"the optimizer '{settings.type}' keeps"
                        f" {', '.join(map(str, state)) or 'nothing'} for a weight, but declares"
                        f" {', '.join(declared) or 'nothing'}",
                        location="/optimizer/type",
                        help=f"its 'state' must name every entry of the state, which are tensors:"
                        f" {shapes}; or use another optimizer",
                    )

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - of torch
        """Remove all gradients."""
        super().zero_grad(set_to_none)
        for sharded in self.copies:
            sharded.grad = None

    def updated(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return the parameter that is updated in place of one of the module."""
        return self.copies.get(parameter, parameter)


def set_rates(optimizer: Optimizers, share: float, update: int, updates: int) -> None:
    """Set the learning rate and the changing options of all parameter groups for an update.

    Args:
        optimizer: the optimizers.
        share: the rate as a multiple of the highest rate of each group.
        update: number of the update, from 1.
        updates: number of updates of the run.
    """
    for group in optimizer.param_groups:
        group["lr"] = share * group[_PEAK]
        for name, curve in group[_CURVES].items():
            group[name] = curve_at(curve, update, updates)


def _move_average(optimizer: torch.optim.Optimizer, _: tuple[Any, ...], __: dict[str, Any]) -> None:
    """Move the averages towards the weights after an update; the first update begins them.

    Source: Polyak & Juditsky 1992; with a decay, Tarvainen & Valpola 2017, equation 2.
    """
    with torch.no_grad():
        for group in optimizer.param_groups:
            state = optimizer.state
            members = [p for p in group["params"] if p.grad is not None or EMA in state.get(p, ())]
            for parameter in members:
                if EMA not in state[parameter]:
                    state[parameter][EMA] = parameter.detach().clone()
            averages = [state[parameter][EMA] for parameter in members]
            for average, parameter in zip(averages, members, strict=True):
                average.lerp_(parameter.detach(), 1.0 - group[EMA])


def averaged_weights(
    weights: Mapping[str, Tensor], state: Mapping[str, Tensor], ties: Iterable[Sequence[str]]
) -> dict[str, Tensor]:
    """Return weights with those that have a moving average replaced by it.

    Args:
        weights: weights of a checkpoint by path, tied ones under one path.
        state: state of the optimizer, from `optimizer_tensors`.
        ties: paths of tied weights, group by group.
    """
    names = {path: group for group in ties for path in group}
    return {
        path: next(
            (
                state[f"{name}.{EMA}"]
                for name in names.get(path, (path,))
                if f"{name}.{EMA}" in state
            ),
            tensor,
        )
        for path, tensor in weights.items()
    }


def clip_gradient(parameters: Iterable[nn.Parameter], clip: float | None) -> Tensor:
    """Scale gradients in place so that their common norm is at most `clip`.

    Args:
        parameters: parameters without a gradient are skipped.
        clip: maximum Euclidean norm of all gradients together; None only measures.

    Returns:
        The norm before scaling, as a scalar tensor, so that the host does not wait for
        the device.  It is not finite if a gradient is not: check it before updating.
    """
    with_gradient = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in with_gradient if p.grad is not None])
    if clip is not None:
        nn.utils.clip_grads_with_norm_(with_gradient, clip, norm)
    return norm


def optimizer_tensors(optimizer: Optimizers, module: nn.Module) -> dict[str, Tensor]:
    """Return the state of an optimizer as a flat dictionary, for safetensors.

    Keys are `<parameter>.<part>`, such as ``"encoder.proj.weight.exp_avg"``; a shared
    parameter appears under its first name.  The tensors are not copied: write them before
    the next update.  Settings and the learning rate are left out: they follow from the run
    file and the number of the update.
    """
    return {
        f"{name}.{part}": shards_like(tensor.detach(), parameter)
        if optimizer.updated(parameter) is not parameter and tensor.shape == parameter.shape
        else tensor.detach().contiguous()
        for name, parameter in module.named_parameters()
        for part, tensor in optimizer.state.get(optimizer.updated(parameter), {}).items()
    }


def state_like(optimizer: Optimizers, module: nn.Module) -> dict[str, Tensor]:
    """Return tensors with the names, shapes and sharding of the state after the first update."""
    templates: dict[str, Tensor] = {}
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in module.named_parameters():
        group = groups.get(optimizer.updated(parameter))
        for part, shape in {} if group is None else _parts(parameter, group).items():
            device = local_shard(parameter).device
            templates[f"{name}.{part}"] = (
                parameter.detach()
                if shape == parameter.shape
                else torch.zeros(shape, device=device)
            )
    return templates


def load_optimizer_tensors(
    optimizer: Optimizers, module: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Restore the state that `optimizer_tensors` returned; training continues bit for bit.

    Args:
        optimizer: newly made for `module` with the settings of the saved optimizer; its
            state is replaced, or left unchanged if an error is raised.
        module: must be on the device where training continues.
        tensors: may be on any device, and sharded or not; they are copied.

    Raises:
        InputError: a tensor belongs to no parameter, has the wrong shape, or another
            tensor of the same parameter is missing.
    """
    parameters = {name: optimizer.updated(p) for name, p in module.named_parameters()}
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, part = key.rpartition(".")
        parameter = parameters.get(name)
        shapes = {} if parameter is None else _parts(parameter, groups.get(parameter, {}))
        if part not in shapes:
            msg = f"optimizer state '{key}' belongs to no parameter of the model"
            raise InputError(msg)
        scalar = tensor.numel() == 1 and shapes[part] == ()  # a shard has one axis at least
        if tensor.shape != shapes[part] and not scalar:
            msg = (
                f"optimizer state '{key}' has shape {tuple(tensor.shape)}, expected {shapes[part]}"
            )
            raise InputError(msg)
        by_parameter.setdefault(name, {})[part] = tensor.reshape(()) if scalar else tensor
    for name, parts in by_parameter.items():
        parameter = parameters[name]
        if missing := _parts(parameter, groups[parameter]).keys() - parts.keys():
            msg = f"optimizer state '{name}.{min(missing)}' is missing"
            raise InputError(msg)

    optimizer.state.clear()
    for name, parts in by_parameter.items():
        parameter = parameters[name]
        like = torch.empty_like(parameter, memory_format=torch.preserve_format).detach()
        # Fused updates need the step count on the parameter's device, other updates on the CPU.
        fused = groups[parameter].get("fused")
        device = parameter.device if fused else torch.device("cpu")
        optimizer.state[parameter] = {
            part: tensor.detach().to(device, torch.float32, copy=True)
            if part == "step"
            else like.clone().copy_(_sharded_as(tensor, like))
            if tensor.shape == like.shape
            else tensor.detach().to(parameter.device, copy=True)
            for part, tensor in parts.items()
        }


def _sharded_as(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a tensor that is sharded, or complete, as another one is."""
    if isinstance(like, DTensor):
        return tensor if isinstance(tensor, DTensor) else shards_like(tensor, like)
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _parts(parameter: Tensor, group: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the optimizer state of a parameter, from the settings of its group."""
    if not group:
        return {}
    shape = tuple(parameter.shape)
    average = {EMA: shape} if group.get(EMA) is not None else {}
    return average | dict(group[_SETTINGS].state(shape))


_FLAT = 1e-6
"""Relative spread below which a weight is constant, such as the gains of a norm."""


def scale_weights(model: nn.Module, base: nn.Module, grown: Mapping[str, WidthGrowth]) -> None:
    """Scale the initial weights of a model, in place, to the sizes that follow from its base.

    Vectors, weights that grow by no axis and constant ones, such as zeros, stay as they are.

    Args:
        model: a new model.
        base: the base model, new too.
        grown: how each weight grows.
    """
    narrow: Mapping[str, Any] = dict(base.named_parameters())
    with torch.no_grad():
        for path, weight in model.named_parameters():
            growth = grown.get(path)
            if growth is None or weight.dim() < 2 or weight.shape == narrow[path].shape:  # noqa: PLR2004
                continue
            before, now = float(narrow[path].std()), float(weight.std())
            if min(before, now) > _FLAT * float(weight.abs().max()):
                weight.mul_(before * growth.size / now)
