"""Tensors that are spread over processes: made whole, divided, measured.

A weight may be a plain tensor, the same on every process, or a DTensor of which each
process holds a part.  Functions here must be called on all processes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from .world import World


def whole(tensors: Mapping[str, Tensor], *, wanted: bool) -> dict[str, Tensor]:
    """Return tensors as if there were one process.

    Args:
        tensors: the same names in the same order on all processes.
        wanted: whether this process wants them; otherwise none is kept.
    """
    found = {}
    for name, tensor in tensors.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if wanted:
            found[name] = full.detach()
    return found


def divided_as(full: Tensor, like: Tensor) -> Tensor:
    """Return a whole tensor spread as another one is; itself when that one is not.

    Every process must have the whole tensor: nothing is sent.
    """
    if not isinstance(like, DTensor):
        return full
    on_device = full.to(like.device_mesh.device_type)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)


def here(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def clip(parameters: Iterable[nn.Parameter], limit: float | None, world: World) -> Tensor:
    """Scale gradients in place so that their common norm is at most `limit`.

    As `clip_gradient`, also for gradients of which each process holds a part: squares are
    added up with a weight of one over the number of processes that hold the same part.

    Args:
        parameters: those without a gradient are passed over.
        limit: largest Euclidean norm of all gradients together; None only measures.
        world: the processes.

    Returns:
        The norm before scaling, a scalar, the same on every process.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    square = torch.zeros((), device=world.device)
    for gradient in gradients:
        share = _parts(gradient) / world.size
        square = square + share * torch.linalg.vector_norm(here(gradient)).square().float()
    dist.all_reduce(square)
    norm = square.sqrt()
    if limit is not None:
        scale = torch.clamp(limit / (norm + 1e-6), max=1.0)
        torch._foreach_mul_([here(gradient) for gradient in gradients], scale)
    return norm


def _parts(tensor: Tensor) -> int:
    """Return in how many different parts a tensor is held."""
    if not isinstance(tensor, DTensor):
        return 1
    mesh = tensor.device_mesh
    return prod(
        mesh.size(axis) for axis, place in enumerate(tensor.placements) if not place.is_replicate()
    )


def apart(groups: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return an optimizer's groups, divided so that none mixes ways of spreading.

    One kernel updates a whole group, and takes only tensors that are spread alike.
    """
    found: list[dict[str, object]] = []
    for group in groups:
        parameters = group["params"]
        if not isinstance(parameters, list):
            raise TypeError(type(parameters).__name__)
        kinds: dict[object, list[nn.Parameter]] = {}
        for parameter in parameters:
            kind = parameter.device_mesh if isinstance(parameter, DTensor) else None
            kinds.setdefault(kind, []).append(parameter)
        found += [{**group, "params": members} for members in kinds.values()]
    return found
