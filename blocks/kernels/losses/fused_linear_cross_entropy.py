"""Fused linear cross-entropy: computes the output projection and the loss in chunks.

The logits, R x V numbers, are by far the largest tensor of a training, and their gradients are
equally large.  Here both exist only for one chunk of positions at a time: each chunk of logits
is computed, normalized, turned into its gradient in place and multiplied back before the next
chunk starts.

Axes in this file, also used as suffixes of tensor names:

    R  positions                     V  vocabulary
    r  positions of one chunk        D  width of the input of the projection
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..few_shapes import SMALLEST, in_bfloat16
from ..linear import Product, times_transposed, transposed_times
from ..precision import as_autocast
from .cross_entropy import Spread, smoothed_cross_entropy, vocabulary_mass

CHUNK = 2**25
"""Logits per chunk on a CPU: 128 MB in float32, 64 MB in bfloat16."""
WIDE_CHUNK = 2**27
"""Logits per chunk on an accelerator, where launching the kernels of many chunks takes time."""
ALIGNED = 64
"""On an accelerator, rows of logits begin at multiples of this: kernels of products that read and
write matrices at other addresses take up to five times as long."""
CPU_ROWS = 1024
"""Positions per chunk on a CPU: more do not fit the caches, and fewer add to the gradient of the
weight too often."""
CACHED = 2**18
"""Logits normalized at a time on a CPU: 1 MB, so that all passes but the first hit the cache."""
HALF_ROWS = 4096
"""Positions per chunk in float16, so that no sum over them exceeds its largest number, 65504."""
WORDS = 4096
"""Vocabulary entries per weight gradient product on a CPU, so that it stays in the cache."""
LossKernel = Literal["torch", "triton"]
"""Kernel that normalizes logits: torch's operators, or one of Triton on CUDA."""


def has_triton() -> bool:
    """Return whether Triton is installed."""
    return find_spec("triton") is not None


class LinearOutput(NamedTuple):
    """The output x W^T + b of a linear map that was not computed, so that a loss can do it."""

    x: Tensor
    """Input of the map, [..., D]."""
    weight: Tensor
    """[V, D]."""
    bias: Tensor | None = None
    """[V]."""
    copy: Tensor | None = None
    """[V, D]: the weight in the dtype of the products, if there is such a copy."""


def fused_linear_cross_entropy(
    output: LinearOutput,
    labels: Tensor,
    mask: Tensor,
    *,
    smoothing: float,
    spread: Spread,
    kernel: Product = "torch",
    normalizer: LossKernel = "torch",
) -> tuple[Tensor, Tensor]:
    """Return `smoothed_cross_entropy` of the logits x W^T + b without storing all logits.

    With w_y the row of the label, the mean of the logits of a position is x . mean(W), so
    smoothing needs no pass over the logits:

        loss = logsumexp(W x) - (1 - e) x . w_y - e x . mean(W)

    The forward pass computes the gradients.  On a CPU padding takes part in no product.
    Products run in the autocast precision, everything else in float32.  The host does not
    wait for an accelerator.  The backward pass can run only once.

    Args:
        output: input, weight and bias of the projection.
        labels: classes [...], of the shape of the leading axes of x.
        mask: [...], true at the items that count.
        smoothing: as for `smoothed_cross_entropy`.
        spread: as for `smoothed_cross_entropy`.
        kernel: kernel of products in float32 on the CPU.
        normalizer: kernel of the softmax and its gradient.

    Returns:
        The loss, and the negative log-likelihood without smoothing, which has no gradient.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or the shapes do not match.

    Source: Szegedy et al. 2016, section 7, https://arxiv.org/abs/1512.00567
    """
    x, weight_VD, bias_V, copy_VD = output
    if x.shape[:-1] != labels.shape:
        msg = f"positions {tuple(x.shape[:-1])} do not fit labels {tuple(labels.shape)}"
        raise ValueError(msg)
    if torch.compiler.is_compiling():  # a compiler cannot trace the gradients computed in advance
        logits = F.linear(x, weight_VD, bias_V)
        return smoothed_cross_entropy(logits, labels, mask, smoothing=smoothing, spread=spread)
    mass = vocabulary_mass(smoothing, spread, weight_VD.size(0))
    non_padding_R = mask.flatten()
    x_RD, target_R, mask_R = x.flatten(0, -2), labels.flatten(), None
    if x.device.type == "cpu":
        rows_R = non_padding_R.nonzero()[:, 0]
        x_RD, target_R = x_RD[rows_R], target_R[rows_R]
    else:
        # The number of non-padding rows is on the device, and reading it would wait: use all
        # rows and a mask.  The padding id may be outside the vocabulary, such as -100.
        target_R, mask_R = target_R.masked_fill(~non_padding_R, 0), non_padding_R
    trained = [
        tensor
        for tensor in (x_RD, weight_VD, bias_V)
        if tensor is not None and tensor.requires_grad
    ]
    gradients = torch.is_grad_enabled() and bool(trained)
    if copy_VD is not None:  # the gradient goes to the weight, without a cast
        copy_VD = copy_VD.detach()
    loss, nll = _FusedLinearCrossEntropy.apply(
        x_RD, weight_VD, bias_V, target_R, mask_R, mass, gradients, kernel, normalizer, copy_VD
    )  # type: ignore[no-untyped-call]
    return loss, nll


class _FusedLinearCrossEntropy(torch.autograd.Function):
    """Summed smoothed loss and nll of a projection; `forward` computes the gradients."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - `apply` takes no keywords
        ctx: Any,
        x_RD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_R: Tensor,
        mask_R: Tensor | None,
        mass: float,
        gradients: bool,  # noqa: FBT001
        kernel: Product = "torch",
        normalizer: LossKernel = "torch",
        copy_VD: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return both sums; save the gradients for the backward pass."""
        read_RD, weights_VD = as_autocast(x_RD, weight_VD if copy_VD is None else copy_VD)
        with torch.autocast(x_RD.device.type, enabled=False):
            masked_RD = read_RD if mask_R is None else read_RD * mask_R[:, None]
            mean_D = weight_VD.float().mean(0)
            mean_R = read_RD.float() @ mean_D
            if bias_V is not None:
                mean_R += bias_V.float().mean()
            accumulated: _Gradients | None = None
            if gradients:
                accumulated = _Gradients(masked_RD, mask_R, weight_VD, bias_V, mass, mean_D, kernel)
            loss = nll = mean_R.new_zeros(())
            for chunk in row_chunks(len(weight_VD), read_RD):
                score_rV = _logits(read_RD[chunk], weights_VD, kernel)
                if bias_V is not None:
                    score_rV += bias_V.to(score_rV.dtype)
                logsumexp_r, right_r = _normalize(
                    score_rV, target_R[chunk], None if accumulated is None else mass, normalizer
                )
                nll_r = logsumexp_r - right_r
                loss_r = nll_r + mass * (right_r - mean_R[chunk])
                if mask_R is not None:
                    nll_r, loss_r = nll_r * mask_R[chunk], loss_r * mask_R[chunk]
                loss, nll = loss + loss_r.sum(), nll + nll_r.sum()
                if accumulated is not None:
                    accumulated.add(chunk, score_rV, weights_VD, masked_RD[chunk])
                del score_rV  # frees the memory before the next chunk
        ctx.gradients = None if accumulated is None else accumulated.all()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient_of_loss: Tensor, gradient_of_nll: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients, times the gradient of the sum."""
        del gradient_of_nll  # nll is not differentiable, so this is always zero
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            msg = "the backward pass of fused linear cross-entropy can run only once"
            raise RuntimeError(msg)
        scaled = [
            None if gradient is None else gradient.mul_(gradient_of_loss) for gradient in gradients
        ]
        return (*scaled, None, None, None, None, None, None, None)


class _Gradients:
    """Gradients of the loss for x, W and b, in float32, accumulated over chunks.

    Smoothing adds the same number, -e / V, to the gradient of every logit, so its contribution
    is computed once and not added to each logit.
    """

    def __init__(
        self,
        masked_RD: Tensor,
        mask_R: Tensor | None,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        mass: float,
        mean_D: Tensor,
        kernel: Product,
    ) -> None:
        """Start with the contribution of the smoothing."""
        self.mask_R, self.kernel = mask_R, kernel
        share = mass / len(weight_VD)
        sum_D = masked_RD.sum(0, dtype=torch.float32)
        self.of_weight_VD = (-share * sum_D).expand(len(weight_VD), -1).contiguous()
        self.of_x_RD = (-mass * mean_D).expand(masked_RD.shape).contiguous()
        self.of_bias_V: Tensor | None = None
        if bias_V is not None:
            self.of_bias_V = torch.zeros_like(bias_V, dtype=torch.float32)
            self.of_bias_V -= share * (len(masked_RD) if mask_R is None else mask_R.sum())

    def add(self, chunk: slice, gradient_rV: Tensor, weight_VD: Tensor, masked_rD: Tensor) -> None:
        """Add the contribution of a chunk.

        Args:
            chunk: positions of the chunk.
            gradient_rV: gradients of its logits, without the smoothing.
            weight_VD: weight of the projection, in the precision of the products.
            masked_rD: input of the projection, zero at padding.
        """
        self.of_x_RD[chunk] += times_transposed(gradient_rV, weight_VD.t(), self.kernel)
        add_weight_gradient(self.of_weight_VD, gradient_rV, masked_rD, self.kernel)
        if self.of_bias_V is not None and self.mask_R is None:
            self.of_bias_V += gradient_rV.sum(0, dtype=torch.float32)
        elif self.of_bias_V is not None and self.mask_R is not None:
            self.of_bias_V += self.mask_R[chunk].to(gradient_rV.dtype) @ gradient_rV

    def all(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the gradients for x, W and b."""
        if self.mask_R is not None:
            self.of_x_RD *= self.mask_R[:, None]
        return self.of_x_RD, self.of_weight_VD, self.of_bias_V


def _logits(x_rD: Tensor, weight_VD: Tensor, kernel: Product) -> Tensor:
    """Return x W^T; on an accelerator, rows are as far apart as its products need."""
    vocabulary = len(weight_VD)
    if x_rD.device.type == "cpu" or vocabulary % ALIGNED == 0:
        return times_transposed(x_rD, weight_VD, kernel)
    apart = -(-vocabulary // ALIGNED) * ALIGNED
    score_rV = x_rD.new_empty(len(x_rD), apart)[:, :vocabulary]
    return torch.mm(x_rD, weight_VD.t(), out=score_rV)


def _normalize(
    score_rV: Tensor, target_r: Tensor, mass: float | None, normalizer: LossKernel
) -> tuple[Tensor, Tensor]:
    """Return logsumexp and target's logit of each row, and replace the logits by their gradients.

    The gradients lack the constant that smoothing adds to each of them.

    Args:
        score_rV: logits.
        target_r: target ids.
        mass: smoothing mass; None computes no gradients and leaves the logits undefined.
        normalizer: kernel to use.
    """
    if normalizer == "triton":
        from .triton_softmax import softmax_gradient_  # noqa: PLC0415 - only on CUDA

        shift = 0.0 if mass is None else mass - 1.0
        result: tuple[Tensor, Tensor] = softmax_gradient_(
            score_rV, target_r, shift, mass is not None
        )
        return result
    right_r = score_rV.gather(1, target_r[:, None])[:, 0].float()
    vocabulary = score_rV.size(1)
    rows = len(score_rV)
    if score_rV.device.type == "cpu":
        rows = max(1, CACHED // vocabulary)
    full = score_rV.dtype == torch.float32
    logsumexps = []
    scratch_rV = score_rV.new_empty((0 if full else rows, vocabulary), dtype=torch.float32)
    for part_rV, label_r in zip(score_rV.split(rows), target_r.split(rows), strict=True):
        p_rV = part_rV if full else scratch_rV[: len(part_rV)].copy_(part_rV)
        top_r1 = p_rV.amax(1, keepdim=True)
        sum_r1 = p_rV.sub_(top_r1).exp_().sum(1, keepdim=True)
        logsumexps.append((top_r1 + sum_r1.log())[:, 0])
        if mass is not None:
            p_rV.mul_(sum_r1.reciprocal())
            p_rV.scatter_add_(1, label_r[:, None], p_rV.new_full((len(p_rV), 1), mass - 1.0))
            if not full:
                part_rV.copy_(p_rV)
    return torch.cat(logsumexps), right_r


def add_weight_gradient(
    of_weight_VD: Tensor, gradient_rV: Tensor, x_rD: Tensor, kernel: Product
) -> None:
    """Add the contribution of some positions to the gradient of the weight of a linear map.

    Args:
        of_weight_VD: the gradient, in float32.
        gradient_rV: gradients of the outputs of the map.
        x_rD: inputs of the map.
        kernel: kernel of products in float32 on the CPU.
    """
    at_once = WORDS if of_weight_VD.device.type == "cpu" else len(of_weight_VD)
    for start in range(0, len(of_weight_VD), at_once):
        words = slice(start, start + at_once)
        of_weight_VD[words] += transposed_times(gradient_rV[:, words], x_rD, kernel)


def row_chunks(vocabulary: int, x_RD: Tensor) -> Iterator[slice]:
    """Yield slices of similar length that cover all rows, at least one.

    Args:
        vocabulary: logits of a position.
        x_RD: input of the linear map that computes them, in the dtype of the products.
    """
    rows, on_cpu = len(x_RD), x_RD.device.type == "cpu"
    count = max(1, -(-rows * vocabulary // (CHUNK if on_cpu else WIDE_CHUNK)))
    if on_cpu:
        count = max(count, -(-rows // CPU_ROWS))
    if x_RD.dtype == torch.float16:
        count = max(count, -(-rows // HALF_ROWS))
    size = max(1, -(-rows // count))
    if in_bfloat16(x_RD):
        size = -(-size // SMALLEST) * SMALLEST
    for start in range(0, max(rows, 1), size):
        yield slice(start, start + size)
