"""Optimizers: how gradients change weights, and what an optimizer remembers.

Not here: the rate of each update (`schedule.py`), files (`../checkpoint.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from ...specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

_FUSED = frozenset({"cpu", "cuda", "mps", "xpu"})
"""Devices for which torch has a one-kernel update: 4 times as fast on a CPU."""

TABLE = 8
"""Times as long as wide a matrix is at least that is a table of words."""

_Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(BaseModel):
    """How gradients change weights; the defaults are those of the paper.

    Source: Vaswani et al. 2017, section 5.3, https://arxiv.org/abs/1706.03762
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    type: Literal["adam", "adamw", "adafactor", "muon", "sgd"] = "adam"
    """`adam` decays weights through the gradient, the others apart from it; `adafactor` remembers
    sums of rows and columns; `muon` makes the steps of matrices orthogonal, and is `adamw` for
    vectors and tables of words; `sgd` has momentum."""
    betas: tuple[_Beta, _Beta] = (0.9, 0.98)
    """Share of the running mean of the gradient, and of its square, that an update keeps."""
    momentum: float | None = Field(default=None, ge=0, lt=1)
    """Share of the last step that the next one keeps; of `muon` 0.95 and of `sgd` 0.9 if null."""
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
    fused = all(p.device.type in _FUSED and p.is_floating_point() for p in learning)
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
    """Two optimizers as one: what each remembers of its own parameters lies in one state."""

    def __init__(self, muon: torch.optim.Muon, adam: torch.optim.AdamW) -> None:
        """Take the groups of both."""
        super().__init__([*muon.param_groups, *adam.param_groups], {})
        self.parts = muon, adam
        muon.state = adam.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Let both make their update."""
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
    """Return Muon for matrices inside the model, and AdamW for the rest, at one rate.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; the rate that both
    can share: Liu et al. 2025, section 2.2, https://arxiv.org/abs/2502.16982

    Raises:
        InputError: no matrix is inside the model.
    """
    flat = [p for p in matrices if p.dim() == 2]  # noqa: PLR2004 - rows and columns
    inside = [p for p in flat if max(p.shape) <= TABLE * min(p.shape)]
    if not inside:
        raise InputError("'muon' needs a matrix, and the model has none", place="/optimizer/type")
    known = {id(p) for p in inside}
    tables = [p for p in matrices if id(p) not in known]
    rest = [
        {"params": members, "weight_decay": decay}
        for members, decay in ((tables, settings.weight_decay), (vectors, 0.0))
        if members
    ]
    muon = torch.optim.Muon(
        inside,
        lr=0.0,
        weight_decay=settings.weight_decay,
        momentum=0.95 if settings.momentum is None else settings.momentum,
        adjust_lr_fn="match_rms_adamw",
    )
    if not rest:
        return muon
    adam = torch.optim.AdamW(rest, lr=0.0, betas=settings.betas, eps=settings.eps, fused=fused)
    return MuonAndAdam(muon, adam)


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
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, part = key.rpartition(".")
        parameter = parameters.get(name)
        shapes = {} if parameter is None else _parts(parameter, groups.get(parameter, {}))
        if part not in shapes:
            msg = f"optimizer state '{key}' belongs to no parameter of the model"
            raise InputError(msg)
        if tensor.shape != shapes[part]:
            msg = (
                f"optimizer state '{key}' is {tuple(tensor.shape)}, "
                f"its parameter {tuple(shapes[part])}"
            )
            raise InputError(msg)
        found.setdefault(name, {})[part] = tensor
    for name, parts in found.items():
        parameter = parameters[name]
        if missing := _parts(parameter, groups[parameter]).keys() - parts.keys():
            msg = f"optimizer state '{name}.{min(missing)}' is missing"
            raise InputError(msg)

    optimizer.state.clear()
    for name, parts in found.items():
        parameter = parameters[name]
        like = torch.empty_like(parameter, memory_format=torch.preserve_format).detach()
        # The fused update wants its count where the parameter is, the others on the CPU.
        fused = groups[parameter].get("fused")
        place = parameter.device if fused else torch.device("cpu")
        optimizer.state[parameter] = {
            part: tensor.detach().to(place, torch.float32, copy=True)
            if part == "step"
            else like.clone().copy_(tensor)
            if tensor.shape == like.shape
            else tensor.detach().to(parameter.device, copy=True)
            for part, tensor in parts.items()
        }


def _parts(parameter: nn.Parameter, group: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Return what an optimizer remembers of a parameter, by the settings of its group."""
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
    return {"momentum_buffer": shape} if group.get("momentum") else {}
