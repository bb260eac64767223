"""Products in bfloat16 on a CPU in shapes of which there are few.

oneDNN generates machine code for every shape of a bfloat16 product, and keeps it for the lifetime
of the process: 0.3 to 2 MB for each shape, and a millisecond to generate it.  Batches have many
numbers of rows, of sentences and of positions, so the memory of a training grew by gigabytes.
Here, rows are multiplied in a few parts, and attention is computed for a few sentences at a time,
with positions filled up, so that all sizes come from short lists.  The values are the same; only
sums over rows are sums over parts.

Axes: R rows, I input width, O output width; B sequences, H heads, T query positions, S key
positions, K and V key and value widths of one head.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention_backends import AttentionCall, Computes

FEWEST = 256
"""Number of rows below which they are multiplied at once: so few shapes are harmless."""
STEPS = 16
"""Number of part sizes between consecutive powers of two."""
SMALLEST = 32
"""Rows of the smallest part; the remainder is padded to a multiple of it."""
POSITIONS = 8
"""Numbers of positions are multiples of this, or powers of two below it."""
SCORES = 2**19
"""Scores of the sentences that attention computes at a time."""
STEP = 16
"""Queries of a row up to which attention may be a step of decoding."""


def in_bfloat16(*operands: Tensor) -> bool:
    """Return whether a product of these operands is computed by oneDNN in bfloat16.

    Tensor subclasses (distributed, fake) and compiled graphs are computed in their own shapes.
    """
    # Checked first: a compiler would create separate graphs for few and for many rows.
    if torch.compiler.is_compiling() or operands[0].device.type != "cpu":
        return False
    autocast = torch.is_autocast_enabled("cpu")
    if not autocast and operands[0].dtype != torch.bfloat16:  # usually, at each step of decoding
        return False
    dtypes = {operand.dtype for operand in operands}
    if autocast:
        half = torch.get_autocast_dtype("cpu") == torch.bfloat16
        half = half and dtypes <= {torch.float32, torch.bfloat16}
    else:
        half = dtypes == {torch.bfloat16}
    ordinary = all(type(operand) in (Tensor, nn.Parameter) for operand in operands)
    return half and ordinary and torch.backends.mkldnn.is_available()


def parts(rows: int) -> Iterator[int]:
    """Yield the sizes of parts that together cover the rows; the last part may exceed them.

    Each part has the largest size from the list that fits.  The list has `STEPS` sizes per
    power of two, so there are few parts, too.
    """
    while rows > 0:
        step = max(SMALLEST, (1 << (rows.bit_length() - 1)) // STEPS)
        size = max(SMALLEST, rows // step * step)
        # For a small remainder, one part that covers it is better than two.
        if rows < FEWEST:
            size = -(-rows // SMALLEST) * SMALLEST
        yield size
        rows -= size


def times_in_parts(a_RI: Tensor, b_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return a b^T + bias, computed in parts of rows."""
    b_IO = b_OI.t()
    y_RO = a_RI.new_empty(len(a_RI), len(b_OI))
    for start, size in _ranges(len(a_RI)):
        target = y_RO[start : start + size]
        product = target if len(target) == size else a_RI.new_empty(size, len(b_OI))
        if bias_O is None:
            torch.mm(_part(a_RI, start, size), b_IO, out=product)
        else:
            torch.addmm(bias_O, _part(a_RI, start, size), b_IO, out=product)
        if product is not target:
            target.copy_(product[: len(target)])
    return y_RO


def summed_in_parts(a_RO: Tensor, b_RI: Tensor) -> Tensor:
    """Return a^T b, summed over parts of rows."""
    y_OI: Tensor | None = None
    for start, size in _ranges(len(a_RO)):
        part_OI = _part(a_RO, start, size).t() @ _part(b_RI, start, size)
        y_OI = part_OI if y_OI is None else y_OI.add_(part_OI)
    return a_RO.new_zeros(a_RO.size(1), b_RI.size(1)) if y_OI is None else y_OI


def _ranges(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first row and the size of each part."""
    start = 0
    for size in parts(rows):
        yield start, size
        start += size


def _part(x_RI: Tensor, start: int, size: int) -> Tensor:
    """Return `size` rows from `start` on, padded with rows of zeros."""
    part = x_RI[start : start + size]
    if len(part) == size:
        return part
    padded = x_RI.new_zeros(size, x_RI.size(1))
    padded[: len(part)] = part
    return padded


def positions(count: int) -> int:
    """Return the number of positions to which `count` of them are filled up.

    Below `POSITIONS` it is a power of two, then a multiple of `POSITIONS`, and above 64 positions
    one of 8 sizes for each power of two.
    """
    if count <= POSITIONS:
        return 1 << max(count - 1, 0).bit_length()
    step = max(POSITIONS, (1 << (count.bit_length() - 1)) // 8)
    return -(-count // step) * step


def sentences(count: int, scores: int) -> list[int]:
    """Return how many sentences are computed at a time; the sum may exceed `count`.

    All are powers of two, and all but the last are equal.

    Args:
        count: number of sentences.
        scores: pairs of positions of a sentence, in all heads.
    """
    most = 1 << max(SCORES // scores, 1).bit_length() - 1
    complete, remainder = divmod(count, most)
    return [most] * complete + ([1 << (remainder - 1).bit_length()] if remainder else [])


def attend_in_few_shapes(compute: Computes, call: AttentionCall) -> Tensor:
    """Compute attention for a few sentences at a time, with positions that are filled up.

    Steps of decoding, whose queries are few, keep their shapes: filling up their keys would copy
    them at each step.

    Args:
        compute: the backend.
        call: what it computes.

    Returns:
        The output, [B, H, T, V].
    """
    query, key, value, mask, causal, *_ = call
    rows, heads, length, _ = query.shape
    if not in_bfloat16(query, key, value) or length <= STEP or not rows:
        return compute(call)
    keys, length_, keys_ = key.size(2), positions(length), positions(key.size(2))
    sizes = sentences(rows, heads * length_ * keys_)
    rows_ = sum(sizes)

    def filled(x: Tensor, length: int) -> Tensor:
        more = (0, 0, 0, length - x.size(2), 0, 0, 0, rows_ - rows)
        return F.pad(x.to(torch.bfloat16), more) if any(more) else x.to(torch.bfloat16).contiguous()

    if keys_ > keys and not causal and mask is None:
        mask = torch.ones(1, 1, 1, keys, dtype=torch.bool)
    if mask is not None:  # further keys are hidden; further queries and rows read the others
        mask = mask[(None,) * (4 - mask.ndim)]
        mask = F.pad(mask.expand(*mask.shape[:-1], keys), (0, keys_ - keys), value=False)
        mask = _more(mask, length_ - length, rows_ - rows, value=1.0)
    bias = call.bias
    if bias is not None:
        bias = bias[(None,) * (4 - bias.ndim)]
        bias = _more(F.pad(bias, (0, keys_ - keys)), length_ - length, rows_ - rows, value=0.0)
    operands = filled(query, length_), filled(key, keys_), filled(value, keys_), mask, bias
    divided = [[x] * len(sizes) if x is None or len(x) == 1 else x.split(sizes) for x in operands]
    ys = [
        compute(call._replace(query=q, key=k, value=v, mask=m, bias=b))
        for q, k, v, m, b in zip(*divided, strict=True)
    ]
    y_BHTV = ys[0] if len(ys) == 1 else torch.cat(ys)
    return y_BHTV[:rows, :, :length]


def _more(x: Tensor, positions: int, rows: int, *, value: float) -> Tensor:
    """Add positions and rows to a mask or a bias [B or 1, H or 1, T or 1, S], if it has these."""
    more = (positions if x.size(2) > 1 else 0, rows if len(x) > 1 else 0)
    return F.pad(x, (0, 0, 0, more[0], 0, 0, 0, more[1]), value=value) if any(more) else x
