"""Masks of pairs of positions.

Every module is an elementwise function of the positions of queries and keys and of the rows of the
batch, index tensors of any shapes that broadcast: FlexAttention calls it with scalars, and the
other backends with [T, 1], [1, S] and [B, 1, 1].  `reach` is the largest distance to an earlier
key that it allows, or None; while decoding, older keys are not read.  If `exact`, a causal query
may attend to all keys within the reach, so decoding one position needs no mask.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn


class Window(nn.Module):
    """Positions at most a distance apart.

    Source: Beltagy et al. 2020, section 3.1.
    """

    exact = True

    def __init__(self, distance: int) -> None:
        """Set the largest distance."""
        super().__init__()
        self.reach = distance

    def forward(self, query: Tensor, key: Tensor, row: Tensor) -> Tensor:  # noqa: ARG002
        """Return |query - key| <= distance."""
        return (query - key).abs() <= self.reach


class Chunked(nn.Module):
    """Positions of the same chunk."""

    exact = False

    def __init__(self, size: int) -> None:
        """Set the size of a chunk."""
        super().__init__()
        self.size, self.reach = size, size - 1

    def forward(self, query: Tensor, key: Tensor, row: Tensor) -> Tensor:  # noqa: ARG002
        """Return floor(query / size) = floor(key / size)."""
        return query // self.size == key // self.size


class BlockSparse(nn.Module):
    """Neighboring blocks and global positions.

    Source: Zaheer et al. 2020, section 2.
    """

    exact, reach = False, None

    def __init__(self, block: int, window_blocks: int = 1, global_tokens: int = 0) -> None:
        """Set the size of a block, and the numbers of neighbors and of global positions."""
        super().__init__()
        self.block, self.near, self.everywhere = block, window_blocks, global_tokens

    def forward(self, query: Tensor, key: Tensor, row: Tensor) -> Tensor:  # noqa: ARG002
        """Return whether the blocks are neighbors, or one of the positions is global."""
        near = (query // self.block - key // self.block).abs() <= self.near
        if not self.everywhere:
            return near
        return near | (query < self.everywhere) | (key < self.everywhere)


class Prefix(nn.Module):
    """Earlier positions and the prefix.

    Source: Raffel et al. 2020, section 3.2.1.
    """

    exact, reach = False, None

    def forward(self, query: Tensor, key: Tensor, row: Tensor, prefix: Tensor) -> Tensor:
        """Return key <= query or prefix[row, key], for a prefix [B, S]."""
        return (key <= query) | prefix[row, key]


class Document(nn.Module):
    """Positions of the same document.

    Source: Krell et al. 2021, section 3.2.2.
    """

    exact, reach = False, None

    def forward(self, query: Tensor, key: Tensor, row: Tensor, document: Tensor) -> Tensor:
        """Return document[row, query] = document[row, key], for documents [B, S]."""
        return document[row, query] == document[row, key]


class _Combined(nn.Module):
    """Two to four masks, and the wires that each receives."""

    def __init__(
        self,
        first: nn.Module,
        second: nn.Module,
        third: nn.Module | None = None,
        fourth: nn.Module | None = None,
        ports: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """Store the masks.

        Args:
            first: a mask.
            second: another mask.
            third: another mask, if any.
            fourth: another mask, if any.
            ports: slot to the wires that are passed on to its mask, if any.
        """
        super().__init__()
        self.first, self.second, self.third, self.fourth = first, second, third, fourth
        self.ports = {slot: tuple(names) for slot, names in ports.items()}

    @property
    def masks(self) -> dict[str, Any]:
        """The masks by slot."""
        slots = ("first", "second", "third", "fourth")
        return {slot: mask for slot in slots if (mask := getattr(self, slot)) is not None}

    @property
    def reaches(self) -> list[int | None]:
        """The reach of every mask."""
        return [mask.reach for mask in self.masks.values()]

    def allowed(
        self, query: Tensor, key: Tensor, row: Tensor, wires: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """Return what each mask allows."""
        return [
            mask(query, key, row, **{name: wires[name] for name in self.ports.get(slot, ())})
            for slot, mask in self.masks.items()
        ]


class AllOf(_Combined):
    """Intersection of masks."""

    @property
    def exact(self) -> bool:
        """Whether all masks are exact."""
        return all(mask.exact for mask in self.masks.values())

    @property
    def reach(self) -> int | None:
        """The smallest reach."""
        return min((reach for reach in self.reaches if reach is not None), default=None)

    def forward(self, query: Tensor, key: Tensor, row: Tensor, **wires: Tensor) -> Tensor:
        """Return where all masks are true."""
        first, *others = self.allowed(query, key, row, wires)
        for other in others:
            first = first & other
        return first


class AnyOf(_Combined):
    """Union of masks."""

    exact = False

    @property
    def reach(self) -> int | None:
        """The largest reach; None if a mask has none."""
        finite = [reach for reach in self.reaches if reach is not None]
        return max(finite) if len(finite) == len(self.reaches) else None

    def forward(self, query: Tensor, key: Tensor, row: Tensor, **wires: Tensor) -> Tensor:
        """Return where at least one mask is true."""
        first, *others = self.allowed(query, key, row, wires)
        for other in others:
            first = first | other
        return first
