"""Block-sparse attention: each block attends to a window, global tokens and random blocks.

Axes: B sequences, T positions, D model width, H heads, K and V key and value widths of one
head, N blocks of C positions, L key positions per block, G global tokens, J random blocks
per block.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.attention import attend, weigh
from ..kernels.attention_backends import BY_RULE, Cores
from ..kernels.linear import LinearMap, draw_linear

_PRIME = 2_147_483_647
"""Modulus of the hash; products of two smaller numbers stay below 2^63."""


class BlockSparseAttention(nn.Module):
    """Sparse attention in blocks of positions: window, global tokens and random blocks.

    Time and memory grow with T * L instead of T^2.  The random blocks are a function of the
    seed, the head and the number of blocks, so they are the same on every machine; unlike in
    the paper's code, layers with the same seed have the same random blocks.

    Source: Zaheer et al. 2020, section 2 and appendix D; window, global tokens and their own
    projections: Beltagy et al. 2020, section 3.1.
    """

    cores: Cores = BY_RULE
    """Attention backends by length."""

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
        """Create the four projections and, if `global_maps`, those of the global tokens."""
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
        """Draw Xavier-uniform weights; the projections of global tokens start as copies."""
        draw_linear(generator, self.query, self.key, self.value, self.out)
        if self.global_maps is not None:
            for name in ("query", "key", "value"):
                getattr(self.global_maps, name).load_state_dict(getattr(self, name).state_dict())

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend from every position of x [B, T, D].

        Args:
            x: queries, and the sequence that is attended to.
            mask: [B, T], true at positions that may be attended to.

        Returns:
            The attention output, [B, T, D]; where nothing may be attended to, the output
            projection of zeros.
        """
        query, key, value = (self._split(m(x)) for m in (self.query, self.key, self.value))
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        y_BHTV = self._attend_blocks(query, key, value, mask)
        if self.global_tokens:
            # Always G rows, even if the sequence is shorter.
            first_BHGV = self._attend_global(x, query, key, value, mask)
            local = F.pad(y_BHTV, (0, 0, 0, self.global_tokens))[:, :, self.global_tokens :]
            y_BHTV = torch.cat([first_BHGV, local], 2)
        out: Tensor = self.out(y_BHTV[:, :, : x.size(1)].transpose(1, 2).flatten(2))
        return out

    def attention_weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the attention weights, [B, H, T, T], for inspection.

        Only this method computes the scores of all pairs; arguments as of `forward`.
        """
        query, key = self._split(self.query(x)), self._split(self.key(x))
        position_T = torch.arange(x.size(1), device=x.device)
        block_T, first = position_T // self.block, position_T < self.global_tokens
        attends_TS = (block_T[:, None] - block_T).abs() <= self.window_blocks
        if self.window is not None:
            attends_TS = attends_TS & ((position_T[:, None] - position_T).abs() <= self.window)
        attends_HTS = (attends_TS | first[:, None] | first)[None]
        if self.random_blocks:
            blocks = -(-x.size(1) // self.block)
            index_HNJ, valid_HNJ = self.drawn(blocks, x.device)
            attends_HNM = torch.zeros(
                self.heads, blocks, blocks + 1, dtype=torch.bool, device=x.device
            )
            # Invalid draws are written to an extra last column, which is never indexed.
            attends_HNM.scatter_(2, index_HNJ.where(valid_HNJ, blocks), value=True)
            attends_HTS = attends_HTS | attends_HNM[:, block_T][:, :, block_T]
        bias_HTS = x.new_zeros(()).where(attends_HTS, float("-inf"))
        weight_BHTS = weigh(query, key, mask, bias=bias_HTS[None])
        if self.global_maps is not None:
            maps = self.global_maps
            global_BHTS = weigh(self._split(maps.query(x)), self._split(maps.key(x)), mask)
            weight_BHTS = torch.where(first[:, None], global_BHTS, weight_BHTS)
        return weight_BHTS

    def drawn(self, blocks: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Return the indices of the random blocks, [H, N, J], and whether each is valid.

        No random block is in the window, consists only of global tokens, or is drawn twice;
        if there are fewer than J such blocks, the remaining draws are invalid.

        Args:
            blocks: number of blocks N of the sequence.
            device: device of the result.
        """
        n = torch.arange(blocks, device=device)
        heads = torch.arange(self.heads, device=device)[:, None, None]
        hash_ = n[:, None] * 73_856_093 + n * 19_349_663 + heads * 83_492_791
        hash_ = (hash_ + self.seed * 50_331_653 + 1) % _PRIME
        for factor, shift in ((48_271, 15), (69_621, 12), (16_807, 13)):
            hash_ = (hash_ ^ (hash_ >> shift)) * factor % _PRIME
        free = (n[:, None] - n).abs() > self.window_blocks
        free = free & ((n + 1) * self.block > self.global_tokens)
        # Padded, so that there are at least J candidates.
        hash_ = F.pad(hash_.masked_fill(~free, -1), (0, self.random_blocks), value=-1)
        best, index = hash_.topk(self.random_blocks, -1)
        return index.clamp(max=blocks - 1), best >= 0

    def _attend_blocks(self, query: Tensor, key: Tensor, value: Tensor, mask_BT: Tensor) -> Tensor:
        """Attend to window, global tokens and random blocks; the result is [B, H, N * C, V]."""
        missing = -mask_BT.size(1) % self.block
        query_BHNCK, key_BHNCK, value_BHNCV = (
            F.pad(part, (0, 0, 0, missing)).unflatten(2, (-1, self.block))
            for part in (query, key, value)
        )
        blocks = query_BHNCK.size(2)
        random = self.drawn(blocks, mask_BT.device) if self.random_blocks else None
        index_HNJ = None if random is None else random[0]
        attends_BHNCL = self._mask(blocks, mask_BT, random)
        zero = query.new_zeros(())
        y = attend(
            query_BHNCK.transpose(1, 2).flatten(0, 1),
            self._gathered(key_BHNCK, index_HNJ).transpose(1, 2).flatten(0, 1),
            self._gathered(value_BHNCV, index_HNJ).transpose(1, 2).flatten(0, 1),
            dropout=self.dropout if self.training else 0.0,
            bias=torch.where(attends_BHNCL, zero, float("-inf")).transpose(1, 2).flatten(0, 1),
            cores=self.cores,
        )
        y_BNHCV: Tensor = y.unflatten(0, (-1, blocks))
        return y_BNHCV.transpose(1, 2).flatten(2, 3)

    def _gathered(self, part_BHNCK: Tensor, index_HNJ: Tensor | None) -> Tensor:
        """Gather the keys or values of each block, [B, H, N, L, K]."""
        far, blocks = self.window_blocks, part_BHNCK.size(2)
        around = F.pad(part_BHNCK, (0, 0, 0, 0, far, far))
        gathered = [around[:, :, shift : shift + blocks] for shift in range(2 * far + 1)]
        if index_HNJ is not None:
            heads = torch.arange(self.heads, device=part_BHNCK.device)[:, None, None]
            gathered.append(part_BHNCK[:, heads, index_HNJ].flatten(3, 4))
        if self.global_tokens:
            padded = F.pad(part_BHNCK.flatten(2, 3), (0, 0, 0, self.global_tokens))
            first_BHGK = padded[:, :, : self.global_tokens]
            gathered.append(first_BHGK[:, :, None].expand(-1, -1, blocks, -1, -1))
        return torch.cat(gathered, 3)

    def _mask(self, blocks: int, mask_BT: Tensor, random: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return [B, H or 1, N, C, L], true where a position may attend to a gathered key."""
        block, far, device = self.block, self.window_blocks, mask_BT.device
        n, c = torch.arange(blocks, device=device), torch.arange(block, device=device)
        around = torch.arange((2 * far + 1) * block, device=device)
        key_NL = (n[:, None] - far) * block + around
        window = self._mask_at(mask_BT, key_NL)[:, None, :, None].expand(-1, -1, -1, block, -1)
        if self.window is not None:
            query_NC = n[:, None] * block + c
            distance_NCL = (query_NC[:, :, None] - key_NL[:, None]).abs()
            window = window & (distance_NCL <= self.window)
        parts = [window]
        if random is not None:
            index_HNJ, valid_HNJ = random
            key_HNL = (index_HNJ[..., None] * block + c).flatten(2)
            random_BHNL = self._mask_at(mask_BT, key_HNL)
            random_BHNL = random_BHNL & valid_HNJ.repeat_interleave(block, -1)
            parts = [
                window.expand(-1, self.heads, -1, -1, -1),
                random_BHNL[:, :, :, None].expand(-1, -1, -1, block, -1),
            ]
        if self.global_tokens:
            first_BG = F.pad(mask_BT, (0, self.global_tokens))[:, : self.global_tokens]
            heads = parts[0].size(1)
            parts.append(first_BG[:, None, None, None].expand(-1, heads, blocks, block, -1))
        return torch.cat(parts, -1)

    def _mask_at(self, mask_BT: Tensor, position: Tensor) -> Tensor:
        """Return the mask at positions [...], as [B, ...]; false outside and at global tokens."""
        length = mask_BT.size(1)
        inside = (position >= self.global_tokens) & (position >= 0) & (position < length)
        return mask_BT[:, position.clamp(min=0, max=length - 1)] & inside

    def _attend_global(
        self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Attend from the global tokens to all positions; the result is [B, H, G, V]."""
        if self.global_maps is None:
            query_BHGK = F.pad(query, (0, 0, 0, self.global_tokens))[:, :, : self.global_tokens]
        else:
            first_BGD = F.pad(x, (0, 0, 0, self.global_tokens))[:, : self.global_tokens]
            query_BHGK = self._split(self.global_maps.query(first_BGD))
            key, value = (self._split(m(x)) for m in (self.global_maps.key, self.global_maps.value))
        dropout = self.dropout if self.training else 0.0
        return attend(query_BHGK, key, value, mask_BT, dropout=dropout, cores=self.cores)

    def _split(self, x: Tensor) -> Tensor:
        """Reshape [B, T, H * K] to [B, H, T, K]."""
        x_BTHK: Tensor = x.unflatten(-1, (self.heads, -1))
        return x_BTHK.transpose(1, 2)


class GlobalMaps(nn.Module):
    """Query, key and value projections of the global tokens.

    Source: Beltagy et al. 2020, section 3.1.
    """

    def __init__(self, d_model: int, wide_k: int, wide_v: int, *, bias: bool) -> None:
        """Create the maps; `BlockSparseAttention.initialize` fills them."""
        super().__init__()
        self.query = LinearMap(d_model, wide_k, bias)
        self.key = LinearMap(d_model, wide_k, bias)
        self.value = LinearMap(d_model, wide_v, bias)
