"""Block-sparse attention: blocks of positions read near, global and random ones.

Axes: B sequences, T positions, D width of the model, H heads, K and V widths of one head,
N blocks of C positions, L positions that a block reads, G global positions, J random
blocks that a block reads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.attention_dispatch import attend, weigh
from ..kernels.init import draw_linear
from ..kernels.linear import LinearMap

_PRIME = 2_147_483_647
"""Modulus of the draws: with numbers below it, products stay below 2^63."""


class BlockSparseAttention(nn.Module):
    """Attention of blocks of positions to near, global and random ones.

    Work and memory grow with T times L, not with T^2.  Which random blocks are read
    follows from the seed, the head and the number of blocks, so it is the same on every
    machine; unlike in the paper's code, layers with one seed read the same ones.

    Source: Zaheer et al. 2020, section 2 and appendix D; window, global positions and their
    own projections: Beltagy et al. 2020, section 3.1.
    """

    def __init__(  # noqa: PLR0913 - the params of a block
        self,
        d_model: int,
        heads: int,
        d_k: int,
        d_v: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        block: int = 64,
        window_blocks: int = 1,
        window: int | None = None,
        global_tokens: int = 0,
        global_maps: bool = False,
        random_blocks: int = 0,
        seed: int = 0,
    ) -> None:
        """Make the four projections, and those of the global positions."""
        super().__init__()
        self.heads, self.dropout, self.block = heads, dropout, block
        self.window_blocks, self.window = window_blocks, window
        self.global_tokens, self.random_blocks, self.seed = global_tokens, random_blocks, seed
        self.query = LinearMap(d_model, heads * d_k, bias)
        self.key = LinearMap(d_model, heads * d_k, bias)
        self.value = LinearMap(d_model, heads * d_v, bias)
        self.out = LinearMap(heads * d_v, d_model, bias)
        self.global_maps: GlobalMaps | None = None
        if global_maps:
            self.global_maps = GlobalMaps(d_model, heads * d_k, heads * d_v, bias=bias)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; those of global positions start as copies."""
        draw_linear(generator, self.query, self.key, self.value, self.out)
        if self.global_maps is not None:
            for name in ("query", "key", "value"):
                getattr(self.global_maps, name).load_state_dict(getattr(self, name).state_dict())

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Let every position of x [B, T, D] read.

        Args:
            x: what reads, and is read.
            mask: [B, T], true where it may be read.

        Returns:
            What each position read, [B, T, D]; zeros mixed where nothing may be read.
        """
        query, key, value = (self._split(m(x)) for m in (self.query, self.key, self.value))
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        y_BHTV = self._near(query, key, value, mask)
        if self.global_tokens:
            # As many rows as there are global positions, in a shorter sequence too.
            first_BHGV = self._everything(x, query, key, value, mask)
            rest = F.pad(y_BHTV, (0, 0, 0, self.global_tokens))[:, :, self.global_tokens :]
            y_BHTV = torch.cat([first_BHGV, rest], 2)
        out: Tensor = self.out(y_BHTV[:, :, : x.size(1)].transpose(1, 2).flatten(2))
        return out

    def attention_weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return how much each head reads of each position, [B, H, T, T]; for looking at.

        This is the one place where all pairs are compared; arguments as of `forward`.
        """
        query, key = self._split(self.query(x)), self._split(self.key(x))
        place_T = torch.arange(x.size(1), device=x.device)
        block_T, first = place_T // self.block, place_T < self.global_tokens
        reads_TS = (block_T[:, None] - block_T).abs() <= self.window_blocks
        if self.window is not None:
            reads_TS = reads_TS & ((place_T[:, None] - place_T).abs() <= self.window)
        reads_HTS = (reads_TS | first[:, None] | first)[None]
        if self.random_blocks:
            blocks = -(-x.size(1) // self.block)
            index_HNJ, there_HNJ = self.drawn(blocks, x.device)
            read_HNM = torch.zeros(
                self.heads, blocks, blocks + 1, dtype=torch.bool, device=x.device
            )
            # What is not drawn is marked in a column that nothing reads.
            read_HNM.scatter_(2, index_HNJ.where(there_HNJ, blocks), value=True)
            reads_HTS = reads_HTS | read_HNM[:, block_T][:, :, block_T]
        hidden_HTS = x.new_zeros(()).where(reads_HTS, float("-inf"))
        weight_BHTS = weigh(query, key, mask, bias=hidden_HTS[None])
        if self.global_maps is not None:
            own = self.global_maps
            of_all = weigh(self._split(own.query(x)), self._split(own.key(x)), mask)
            weight_BHTS = torch.where(first[:, None], of_all, weight_BHTS)
        return weight_BHTS

    def drawn(self, blocks: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Return the random blocks [H, N, J] that are read, and [H, N, J] whether they are.

        None is in the window, wholly global, or drawn twice; where there are too few, some
        are not read.

        Args:
            blocks: blocks N of the sequence.
            device: where the numbers lie.
        """
        n = torch.arange(blocks, device=device)
        heads = torch.arange(self.heads, device=device)[:, None, None]
        luck = n[:, None] * 73_856_093 + n * 19_349_663 + heads * 83_492_791
        luck = (luck + self.seed * 50_331_653 + 1) % _PRIME
        for factor, shift in ((48_271, 15), (69_621, 12), (16_807, 13)):
            luck = (luck ^ (luck >> shift)) * factor % _PRIME
        free = (n[:, None] - n).abs() > self.window_blocks
        free = free & ((n + 1) * self.block > self.global_tokens)
        # Filled up, so that there are as many to choose from as are chosen.
        luck = F.pad(luck.masked_fill(~free, -1), (0, self.random_blocks), value=-1)
        best, index = luck.topk(self.random_blocks, -1)
        return index.clamp(max=blocks - 1), best >= 0

    def _near(self, query: Tensor, key: Tensor, value: Tensor, mask_BT: Tensor) -> Tensor:
        """Return what each position reads of near, global and random ones, [B, H, N * C, V]."""
        missing = -mask_BT.size(1) % self.block
        query_BHNCK, key_BHNCK, value_BHNCV = (
            F.pad(part, (0, 0, 0, missing)).unflatten(2, (-1, self.block))
            for part in (query, key, value)
        )
        blocks = query_BHNCK.size(2)
        random = self.drawn(blocks, mask_BT.device) if self.random_blocks else None
        index_HNJ = None if random is None else random[0]
        reads_BHNCL = self._readable(blocks, mask_BT, random)
        nothing = query.new_zeros(())
        y = attend(
            query_BHNCK.transpose(1, 2).flatten(0, 1),
            self._offered(key_BHNCK, index_HNJ).transpose(1, 2).flatten(0, 1),
            self._offered(value_BHNCV, index_HNJ).transpose(1, 2).flatten(0, 1),
            dropout=self.dropout if self.training else 0.0,
            bias=torch.where(reads_BHNCL, nothing, float("-inf")).transpose(1, 2).flatten(0, 1),
        )
        y_BNHCV: Tensor = y.unflatten(0, (-1, blocks))
        return y_BNHCV.transpose(1, 2).flatten(2, 3)

    def _offered(self, part_BHNCK: Tensor, index_HNJ: Tensor | None) -> Tensor:
        """Return keys or values that each block may read, [B, H, N, L, K]."""
        far, blocks = self.window_blocks, part_BHNCK.size(2)
        around = F.pad(part_BHNCK, (0, 0, 0, 0, far, far))
        offered = [around[:, :, shift : shift + blocks] for shift in range(2 * far + 1)]
        if index_HNJ is not None:
            heads = torch.arange(self.heads, device=part_BHNCK.device)[:, None, None]
            offered.append(part_BHNCK[:, heads, index_HNJ].flatten(3, 4))
        if self.global_tokens:
            whole = F.pad(part_BHNCK.flatten(2, 3), (0, 0, 0, self.global_tokens))
            first_BHGK = whole[:, :, : self.global_tokens]
            offered.append(first_BHGK[:, :, None].expand(-1, -1, blocks, -1, -1))
        return torch.cat(offered, 3)

    def _readable(
        self, blocks: int, mask_BT: Tensor, random: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Return [B, H or 1, N, C, L], true where a position reads what its block is offered."""
        block, far, device = self.block, self.window_blocks, mask_BT.device
        n, c = torch.arange(blocks, device=device), torch.arange(block, device=device)
        around = torch.arange((2 * far + 1) * block, device=device)
        place_NL = (n[:, None] - far) * block + around
        reads = self._kept(mask_BT, place_NL)[:, None, :, None].expand(-1, -1, -1, block, -1)
        if self.window is not None:
            reader_NC = n[:, None] * block + c
            distance_NCL = (reader_NC[:, :, None] - place_NL[:, None]).abs()
            reads = reads & (distance_NCL <= self.window)
        parts = [reads]
        if random is not None:
            index_HNJ, drawn_HNJ = random
            place_HNL = (index_HNJ[..., None] * block + c).flatten(2)
            read_BHNL = self._kept(mask_BT, place_HNL)
            read_BHNL = read_BHNL & drawn_HNJ.repeat_interleave(block, -1)
            parts = [
                reads.expand(-1, self.heads, -1, -1, -1),
                read_BHNL[:, :, :, None].expand(-1, -1, -1, block, -1),
            ]
        if self.global_tokens:
            first_BG = F.pad(mask_BT, (0, self.global_tokens))[:, : self.global_tokens]
            heads = parts[0].size(1)
            parts.append(first_BG[:, None, None, None].expand(-1, heads, blocks, block, -1))
        return torch.cat(parts, -1)

    def _kept(self, mask_BT: Tensor, place: Tensor) -> Tensor:
        """Return whether places [...] may be read, [B, ...]; global ones are read elsewhere."""
        length = mask_BT.size(1)
        there = (place >= self.global_tokens) & (place >= 0) & (place < length)
        return mask_BT[:, place.clamp(min=0, max=length - 1)] & there

    def _everything(
        self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Return what the global positions read of all, [B, H, G, V]."""
        if self.global_maps is None:
            query_BHGK = F.pad(query, (0, 0, 0, self.global_tokens))[:, :, : self.global_tokens]
        else:
            first_BGD = F.pad(x, (0, 0, 0, self.global_tokens))[:, : self.global_tokens]
            query_BHGK = self._split(self.global_maps.query(first_BGD))
            key, value = (self._split(m(x)) for m in (self.global_maps.key, self.global_maps.value))
        dropout = self.dropout if self.training else 0.0
        return attend(query_BHGK, key, value, mask_BT, dropout=dropout)

    def _split(self, x: Tensor) -> Tensor:
        """[B, T, H * K] to [B, H, T, K]."""
        x_BTHK: Tensor = x.unflatten(-1, (self.heads, -1))
        return x_BTHK.transpose(1, 2)


class GlobalMaps(nn.Module):
    """Queries, keys and values of global positions, apart from those of the others.

    Source: Beltagy et al. 2020, section 3.1.
    """

    def __init__(self, d_model: int, wide_k: int, wide_v: int, *, bias: bool) -> None:
        """Make the maps; the attention around draws them."""
        super().__init__()
        self.query = LinearMap(d_model, wide_k, bias)
        self.key = LinearMap(d_model, wide_k, bias)
        self.value = LinearMap(d_model, wide_v, bias)
