"""Optimizers: settings, construction, gradient clipping and serialization of their state.

Not here: the learning rate schedule (`schedule.py`), files (`../checkpoint/checkpoint.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...specs.findings import InputError
from .context import State
from .device import Place
from .run import OptimizerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

_FUSED = frozenset({"cpu", "cuda", "mps", "xpu"})
"""Devices with a fused update in torch, which is 4 times as fast on a CPU."""

TABLE = 8
"""Aspect ratio above which a matrix counts as an embedding table."""

EMA = "ema"
"""Name of the moving average in the state of an optimizer, and of its decay in a group."""


def make_optimizer(
    module: nn.Module, settings: OptimizerSettings, ema: float | None = None
) -> torch.optim.Optimizer:
    """Make an optimizer for the parameters of a module that require gradients.

    A parameter shared by several modules is updated once.  The learning rate starts at 0:
    call `set_rate` before each update.

    Args:
        module: must already be on the device where it will be trained.
        settings: `clip` is not used here; see `clip_gradient`.
        ema: decay of an exponential moving average of the weights, which is part of the state of
            the optimizer, so that checkpoints have it; None keeps no average.

    Raises:
        InputError: no parameter of the module requires a gradient.
    """
    optimizer = _optimizer(module, settings)
    if ema is not None:
        for group in optimizer.param_groups:
            group[EMA] = ema
        optimizer.register_step_post_hook(_move_average)
    return optimizer


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


def _optimizer(module: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return the optimizer of the settings.

    Raises:
        InputError: no parameter of the module requires a gradient.
    """
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not trainable:
        msg = "nothing to optimize: no parameter of the model requires a gradient"
        raise InputError(msg)
    matrices = [p for p in trainable if p.dim() > 1]
    vectors = [p for p in trainable if p.dim() <= 1]
    groups = [
        {"params": members, "weight_decay": decay}
        for members, decay in ((matrices, settings.weight_decay), (vectors, 0.0))
        if members
    ]
    fused = all(p.device.type in _FUSED and p.is_floating_point() for p in trainable)
    if settings.type == "adafactor":
        return torch.optim.Adafactor(groups, lr=0.0)
    if settings.type == "sgd":
        momentum = 0.9 if settings.momentum is None else settings.momentum
        return torch.optim.SGD(groups, lr=0.0, momentum=momentum, fused=fused)
    if settings.type == "muon":
        return _muon(matrices, vectors, settings, fused=fused)
    kind = torch.optim.AdamW if settings.type == "adamw" else torch.optim.Adam
    return kind(groups, lr=0.0, betas=settings.betas, eps=settings.eps, fused=fused)


class MuonAndAdam(torch.optim.Optimizer):
    """Muon and AdamW as one optimizer with a common state."""

    def __init__(self, muon: torch.optim.Muon, adam: torch.optim.AdamW) -> None:
        """Take over the parameter groups of both optimizers."""
        super().__init__([*muon.param_groups, *adam.param_groups], {})
        self.parts = muon, adam
        muon.state = adam.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Run the update of both optimizers."""
        del closure
        for part in self.parts:
            part.step()  # type: ignore[no-untyped-call]


def _muon(
    matrices: list[nn.Parameter],
    vectors: list[nn.Parameter],
    settings: OptimizerSettings,
    *,
    fused: bool,
) -> torch.optim.Optimizer:
    """Return Muon for hidden matrices and AdamW for all other parameters, with one learning rate.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; scaling for a common
    learning rate: Liu et al. 2025, section 2.2, https://arxiv.org/abs/2502.16982

    Raises:
        InputError: the model has no hidden matrix.
    """
    flat = [p for p in matrices if p.dim() == 2]  # noqa: PLR2004 - rows and columns
    hidden = [p for p in flat if max(p.shape) <= TABLE * min(p.shape)]
    if not hidden:
        raise InputError(
            "'muon' needs a matrix other than embedding tables, but the model has none",
            location="/optimizer/type",
            help="set 'optimizer.type' to 'adamw'",
        )
    hidden_ids = {id(p) for p in hidden}
    tables = [p for p in matrices if id(p) not in hidden_ids]
    others = [
        {"params": members, "weight_decay": decay}
        for members, decay in ((tables, settings.weight_decay), (vectors, 0.0))
        if members
    ]
    muon = torch.optim.Muon(
        hidden,
        lr=0.0,
        weight_decay=settings.weight_decay,
        momentum=0.95 if settings.momentum is None else settings.momentum,
        adjust_lr_fn="match_rms_adamw",
    )
    if not others:
        return muon
    adam = torch.optim.AdamW(others, lr=0.0, betas=settings.betas, eps=settings.eps, fused=fused)
    return MuonAndAdam(muon, adam)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate


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


def optimizer_tensors(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """Return the state of an optimizer as a flat dictionary, for safetensors.

    Keys are `<parameter>.<part>`, such as ``"encoder.proj.weight.exp_avg"``; a shared
    parameter appears under its first name.  The tensors are not copied: write them before
    the next update.  Settings and the learning rate are left out: they follow from the run
    file and the number of the update.
    """
    return {
        f"{name}.{part}": tensor.detach().contiguous()
        for name, parameter in module.named_parameters()
        for part, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, module: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Restore the state that `optimizer_tensors` returned; training continues bit for bit.

    Args:
        optimizer: newly made for `module` with the settings of the saved optimizer; its
            state is replaced, or left unchanged if an error is raised.
        module: must be on the device where training continues.
        tensors: may be on any device; they are copied.

    Raises:
        InputError: a tensor belongs to no parameter, has the wrong shape, or another
            tensor of the same parameter is missing.
    """
    parameters = dict(module.named_parameters())
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, part = key.rpartition(".")
        parameter = parameters.get(name)
        shapes = {} if parameter is None else _parts(parameter, groups.get(parameter, {}))
        if part not in shapes:
            msg = f"optimizer state '{key}' belongs to no parameter of the model"
            raise InputError(msg)
        if tensor.shape != shapes[part]:
            msg = (
                f"optimizer state '{key}' has shape {tuple(tensor.shape)}, "
                f"expected {tuple(shapes[part])}"
            )
            raise InputError(msg)
        by_parameter.setdefault(name, {})[part] = tensor
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
            else like.clone().copy_(tensor)
            if tensor.shape == like.shape
            else tensor.detach().to(parameter.device, copy=True)
            for part, tensor in parts.items()
        }


def _parts(parameter: nn.Parameter, group: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Return the shapes of the optimizer state of a parameter, from the settings of its group."""
    average = {EMA: parameter.shape} if group.get(EMA) is not None else {}
    return average | _moments(parameter, group)


def _moments(parameter: nn.Parameter, group: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Return the shapes of the state that the update itself needs."""
    shape = parameter.shape
    if "betas" in group:
        return {"step": torch.Size(), "exp_avg": shape, "exp_avg_sq": shape}
    if "beta2_decay" in group and len(shape) > 1:
        rows, columns = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        return {
            "step": torch.Size(),
            "row_var": torch.Size(rows),
            "col_var": torch.Size(columns),
        }
    if "beta2_decay" in group:
        return {"step": torch.Size(), "variance": shape}
    if "ns_steps" in group:  # Muon has it also without momentum
        return {"momentum_buffer": shape}
    return {"momentum_buffer": shape} if group.get("momentum") else {}


SMALLEST = 1e-4
"""Scale below which a run stops: then an overflow has another cause than the scale."""


class LossScaling:
    """Scale of the loss, which changes nothing in float32 and bfloat16.

    Fused optimizers (adam, adamw, sgd) skip an update on the device; before an update of the
    others the host waits for the device.
    """

    def __init__(self, placement: Place, state: State) -> None:
        """Start with torch's scale, or continue with the scale of a checkpoint."""
        self.enabled = placement.dtype == torch.float16
        self._scaler = torch.amp.GradScaler(placement.device.type, enabled=self.enabled)
        self._skipped = torch.tensor(state.skipped, device=placement.device)
        if self.enabled and state.loss_scale:
            self._scaler.load_state_dict(state.loss_scale)

    def state(self) -> dict[str, Any]:
        """Return its part of the state of a run; on an accelerator, this waits for the device."""
        if not self.enabled:
            return {}
        return {"loss_scale": self._scaler.state_dict(), "skipped": int(self._skipped)}

    def report(self) -> dict[str, Any]:
        """Return what metrics.jsonl reports: the scale, and how many updates were skipped."""
        if not self.enabled:
            return {}
        return {"loss_scale": self._scaler.get_scale(), "skipped_updates": int(self._skipped)}

    def summary(self) -> str:
        """Return a line for the log about skipped updates, or ""."""
        if not (skipped := int(self._skipped)):
            return ""
        return f"{skipped} updates were skipped because a gradient overflowed float16"

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale, for the backward pass."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale; call it before gradients are clipped."""
        if self.enabled:
            self._scaler.unscale_(optimizer)

    def counted(self, norm: Tensor) -> Tensor:
        """Count the update as skipped if a gradient overflowed.

        Args:
            norm: Euclidean norm of all gradients, which is not finite if one is not.

        Returns:
            The norm; 0 in place of one that is not finite.
        """
        if not self.enabled:
            return norm
        finite = torch.isfinite(norm)
        self._skipped += ~finite
        return torch.where(finite, norm, torch.zeros_like(norm))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights unless a gradient overflowed, and adjust the scale."""
        self._scaler.step(optimizer)
        self._scaler.update()

    def refuse_too_small(self) -> None:
        """Stop a run whose gradients overflow at any scale.

        Raises:
            InputError: the scale is below `SMALLEST`.
        """
        if self.enabled and self._scaler.get_scale() < SMALLEST:
            raise InputError(
                "gradients overflow float16 at every scale of the loss;"
                f" {int(self._skipped)} updates were skipped",
                location="/precision",
                help="set 'precision' to 'float32', or to 'bfloat16' if the device has it",
            )
