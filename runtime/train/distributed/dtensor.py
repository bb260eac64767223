"""Functions on tensors that may be sharded: gathering, sharding, gradient clipping.

A weight is a plain tensor, equal on every process, or a DTensor of which each process holds a
shard.  All processes must call these functions together.
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
    """Gather sharded tensors.

    Args:
        tensors: must have the same names in the same order on all processes.
        wanted: whether to return them on this process; otherwise the result is empty.
    """
    found = {}
    for name, tensor in tensors.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if wanted:
            found[name] = full.detach()
    return found


def shards_like(full: Tensor, like: Tensor) -> Tensor:
    """Shard a tensor like another one; return it unchanged if the other one is not sharded.

    Every process must have the full tensor: nothing is communicated.
    """
    if not isinstance(like, DTensor):
        return full
    on_device = full.to(like.device_mesh.device_type)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)


def here(tensor: Tensor) -> Tensor:
    """Return the local shard of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def clip(parameters: Iterable[nn.Parameter], limit: float | None, world: World) -> Tensor:
    """Scale gradients in place so that their common norm is at most `limit`.

    Like `clip_gradient`, but also for sharded gradients: the squared norm of each shard is
    weighted by one over the number of processes that hold the same shard.

    Args:
        parameters: parameters without a gradient are skipped.
        limit: maximum Euclidean norm of all gradients together; None only measures.
        world: the processes.

    Returns:
        The norm before scaling, a scalar tensor, equal on every process.
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
    """Return the number of different shards of a tensor."""
    if not isinstance(tensor, DTensor):
        return 1
    mesh = tensor.device_mesh
    return prod(
        mesh.size(axis) for axis, place in enumerate(tensor.placements) if not place.is_replicate()
    )


def apart(groups: list[dict[str, object]]) -> list[dict[str, object]]:
    """Split the parameter groups of an optimizer by the device mesh of their parameters.

    A fused update handles a complete group and needs all its tensors on one mesh.
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
