"""Optimizers: how gradients change weights, and what an optimizer remembers.

Not here: the rate of each update (`schedule.py`), files (`../checkpoint.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from ...specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

_FUSED = frozenset({"cpu", "cuda", "mps", "xpu"})
"""Devices for which torch has a one-kernel update: 4 times as fast on a CPU."""

_Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(BaseModel):
    """How gradients change weights; the defaults are those of the paper.

    Source: Vaswani et al. 2017, section 5.3, https://arxiv.org/abs/1706.03762
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    type: Literal["adam", "adamw"] = "adam"
    """How weights decay: through the gradient (adam) or apart from it (adamw)."""
    betas: tuple[_Beta, _Beta] = (0.9, 0.98)
    """Share of the running mean of the gradient, and of its square, that an update keeps."""
    eps: float = Field(default=1e-9, gt=0)
    """Added to the root of the mean square before dividing by it."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Pull of matrices towards zero; vectors (norms, biases) are left alone."""
    clip: float | None = Field(default=None, gt=0)
    """Largest Euclidean norm of the gradient of all parameters together; null for any."""


def make_optimizer(module: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Make an optimizer for everything in a module that learns.

    A parameter shared by several modules is updated once.  The rate starts at 0:
    call `set_rate` before each update.

    Args:
        module: on the device where it will be trained.
        settings: `clip` is not used here; see `clip_gradient`.

    Raises:
        InputError: nothing in the module learns.
    """
    learning = [p for p in module.parameters() if p.requires_grad]
    if not learning:
        msg = "nothing to optimize: no parameter of the model learns"
        raise InputError(msg)
    matrices = [p for p in learning if p.dim() > 1]
    vectors = [p for p in learning if p.dim() <= 1]
    groups = [
        {"params": members, "weight_decay": decay}
        for members, decay in ((matrices, settings.weight_decay), (vectors, 0.0))
        if members
    ]
    kind = torch.optim.AdamW if settings.type == "adamw" else torch.optim.Adam
    fused = all(p.device.type in _FUSED and p.is_floating_point() for p in learning)
    return kind(groups, lr=0.0, betas=settings.betas, eps=settings.eps, fused=fused)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use one learning rate for all parameters from the next update on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip_gradient(parameters: Iterable[nn.Parameter], clip: float | None) -> Tensor:
    """Scale gradients in place so that their common norm is at most `clip`.

    Args:
        parameters: those without a gradient are passed over.
        clip: largest Euclidean norm of all gradients together; None only measures.

    Returns:
        The norm before scaling, as a scalar tensor, so that nothing waits for the
        device.  It is not finite when a gradient is not: check it before updating.
    """
    with_gradient = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in with_gradient if p.grad is not None])
    if clip is not None:
        nn.utils.clip_grads_with_norm_(with_gradient, clip, norm)
    return norm


def optimizer_tensors(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """Return what the optimizer remembers, flat, so that safetensors can write it.

    Keys are `<parameter>.<part>`, such as ``"encoder.proj.weight.exp_avg"``; a shared
    parameter goes by its first name.  The tensors are the optimizer's own, not
    copies: write them before the next update.  Settings and the rate are left out:
    they follow from the run file and the number of the update.
    """
    return {
        f"{name}.{part}": tensor.detach().contiguous()
        for name, parameter in module.named_parameters()
        for part, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, module: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Put back what `optimizer_tensors` returned; training goes on bit for bit.

    Args:
        optimizer: newly made for `module` with the settings of the saved one; what it
            remembers is replaced, and left as it was when an error is raised.
        module: on the device where training goes on.
        tensors: on any device; copied.

    Raises:
        InputError: a tensor belongs to no parameter, lacks its companions, or has
            the wrong shape.
    """
    parameters = dict(module.named_parameters())
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, part = key.rpartition(".")
        if name not in parameters or part not in ("step", "exp_avg", "exp_avg_sq"):
            msg = f"optimizer state '{key}' belongs to no parameter of the model"
            raise InputError(msg)
        parameter = parameters[name]
        if part != "step" and tensor.shape != parameter.shape:
            msg = (
                f"optimizer state '{key}' is {tuple(tensor.shape)}, "
                f"its parameter {tuple(parameter.shape)}"
            )
            raise InputError(msg)
        found.setdefault(name, {})[part] = tensor
    for name, parts in found.items():
        if missing := {"step", "exp_avg", "exp_avg_sq"} - parts.keys():
            msg = f"optimizer state '{name}.{min(missing)}' is missing"
            raise InputError(msg)

    fused = {p: bool(group["fused"]) for group in optimizer.param_groups for p in group["params"]}
    optimizer.state.clear()
    for name, parts in found.items():
        parameter = parameters[name]
        like = torch.empty_like(parameter, memory_format=torch.preserve_format).detach()
        # The fused update wants its count where the parameter is, the others on the CPU.
        place = parameter.device if fused.get(parameter) else torch.device("cpu")
        optimizer.state[parameter] = {
            "step": parts["step"].detach().to(place, torch.float32, copy=True),
            "exp_avg": like.clone().copy_(parts["exp_avg"]),
            "exp_avg_sq": like.copy_(parts["exp_avg_sq"]),
        }
