"""Projected: the loss of a model whose last map is taken into the loss, in chunks.

The scores of all words at all positions, R x V numbers, are the largest tensor of a
training by far, and their gradients as large again.  Here both exist for a few positions at a
time: each chunk is multiplied, normalized, turned into its gradient in place and multiplied
back before the next one is begun.

Axes in this file, also used as suffixes of tensor names:

    R  positions that count          V  vocabulary
    r  some of them                  D  width of what the last map reads
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ....blocks.kernels.autocast import as_autocast
from ....blocks.kernels.linear import times_transposed
from ..loss import LossSums, label_smoothed, vocabulary_mass

CHUNK = 2**25
"""Scores that exist at a time: 128 MB in float32, 64 MB in bfloat16."""
CACHED = 2**18
"""Scores worked on at a time on a CPU: 1 MB, so that every pass but the first hits the cache."""
WORDS = 4096
"""Vocabulary entries whose weight gradients are added at a time on a CPU, to stay in its cache."""


@contextmanager
def bypassed(head: nn.Module) -> Iterator[None]:
    """Let a module give what it reads, so that a loss can do its work instead.

    Hooks and wrappers of the model around it see a usual call.
    """
    head.forward = _first
    try:
        yield
    finally:
        del head.forward


def _first(x: Tensor) -> Tensor:
    return x


def fused_linear_cross_entropy(
    x_BTD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_BT: Tensor,
    *,
    smoothing: float,
    pad: int,
    spread: Literal["vocabulary", "others"] = "vocabulary",
) -> LossSums:
    """Return `label_smoothed` of x W^T + b without ever holding it.

    With w_y the row of the right word, the mean of a position's scores is x . mean(W), so
    smoothing needs no pass over the scores:

        loss = logsumexp(W x) - (1 - e) x . w_y - e x . mean(W)

    Gradients are made on the way forward, and positions that are padding are left out of all
    products on a CPU.  Products run in autocast's precision, everything else in float32.
    Nothing waits for an accelerator.  The gradient can be taken once.

    Args:
        x_BTD: what the last map reads; any number of leading axes will do.
        weight_VD: its weight.
        bias_V: its bias.
        target_BT: the right words, of the shape of the leading axes.
        smoothing: as of `label_smoothed`.
        pad: as of `label_smoothed`.
        spread: as of `label_smoothed`.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or the shapes do not belong together.

    Source: Szegedy et al. 2016, section 7, https://arxiv.org/abs/1512.00567
    """
    if x_BTD.shape[:-1] != target_BT.shape:
        msg = f"positions {tuple(x_BTD.shape[:-1])} do not fit targets {tuple(target_BT.shape)}"
        raise ValueError(msg)
    mass = vocabulary_mass(smoothing, spread, weight_VD.size(0))
    counts_R = (target_BT != pad).flatten()
    x_RD, target_R, kept_R = x_BTD.flatten(0, -2), target_BT.flatten(), None
    if x_BTD.device.type == "cpu":
        rows_R = counts_R.nonzero()[:, 0]
        x_RD, target_R = x_RD[rows_R], target_R[rows_R]
    else:
        # To know how many rows count would be to wait, so all go through.  Padding may be an
        # id that is no word, such as -100.
        target_R, kept_R = target_R.masked_fill(~counts_R, 0), counts_R
    gradients = torch.is_grad_enabled() and (x_RD.requires_grad or weight_VD.requires_grad)
    loss, nll = _FusedLinearCrossEntropy.apply(
        x_RD, weight_VD, bias_V, target_R, kept_R, mass, gradients
    )  # type: ignore[no-untyped-call]
    return LossSums(loss=loss, nll=nll, tokens=counts_R.sum())


def run_and_compare(
    model: nn.Module,
    head: str | None,
    inputs: Mapping[str, Tensor],
    target_BT: Tensor,
    *,
    smoothing: float,
    pad: int,
    spread: Literal["vocabulary", "others"],
    counts: Mapping[str, int] | None = None,
) -> tuple[dict[str, Tensor], LossSums]:
    """Run a model and compare its output `logits` with the right words.

    Args:
        model: as built, or wrapped for several processes.
        head: path of the map that gives `logits`, to be taken into the loss; None where
            something else gives them.
        inputs: what the model reads.
        target_BT: the right words.
        smoothing: as of `label_smoothed`.
        pad: as of `label_smoothed`.
        spread: as of `label_smoothed`.
        counts: how many positions of an input are no padding, where that is known: a model
            that packs rows need not ask its device then.

    Returns:
        The model's outputs, `logits` left out where a head is given, and the sums.
    """
    inner: Any = getattr(model, "module", model)  # what wraps a model calls it so
    if counts is not None and hasattr(inner, "expect"):
        inner.expect(counts)
    if head is None:
        outputs: dict[str, Tensor] = model(**inputs)
        logits = outputs["logits"]
        return outputs, label_smoothed(
            logits, target_BT, smoothing=smoothing, pad=pad, spread=spread
        )
    last: Any = inner.get_submodule(head)
    with bypassed(last):
        outputs = dict(model(**inputs))
    read_BTD = outputs.pop("logits")
    return outputs, fused_linear_cross_entropy(
        read_BTD, last.weight, last.bias, target_BT, smoothing=smoothing, pad=pad, spread=spread
    )


class _FusedLinearCrossEntropy(torch.autograd.Function):
    """Summed smoothed loss and nll of a projection; gradients are made in `forward`."""

    @staticmethod
    def forward(
        ctx: Any,
        x_RD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_R: Tensor,
        kept_R: Tensor | None,
        mass: float,
        gradients: bool,  # noqa: FBT001 - `apply` takes no names
    ) -> tuple[Tensor, Tensor]:
        """Return both sums, remembering the gradients."""
        read_RD, weights_VD = as_autocast(x_RD, weight_VD)
        with torch.autocast(x_RD.device.type, enabled=False):
            counted_RD = read_RD if kept_R is None else read_RD * kept_R[:, None]
            mean_D = weight_VD.float().mean(0)
            mean_R = read_RD.float() @ mean_D
            if bias_V is not None:
                mean_R += bias_V.float().mean()
            made: _Gradients | None = None
            if gradients:
                made = _Gradients(counted_RD, kept_R, weight_VD, bias_V, mass, mean_D)
            loss = nll = mean_R.new_zeros(())
            for here in _chunks(len(target_R), len(weight_VD)):
                score_rV = times_transposed(read_RD[here], weights_VD)
                if bias_V is not None:
                    score_rV += bias_V.to(score_rV.dtype)
                right_r = score_rV.gather(1, target_R[here, None])[:, 0].float()
                whole_r = _normalize(score_rV, target_R[here], None if made is None else mass)
                nll_r = whole_r - right_r
                loss_r = nll_r + mass * (right_r - mean_R[here])
                if kept_R is not None:
                    nll_r, loss_r = nll_r * kept_R[here], loss_r * kept_R[here]
                loss, nll = loss + loss_r.sum(), nll + nll_r.sum()
                if made is not None:
                    made.add(here, score_rV, weights_VD, counted_RD[here])
                del score_rV  # before the next are made
        ctx.gradients = None if made is None else made.all()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor, of_nll: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients, times the gradient of the sum."""
        del of_nll  # not differentiable, always zero
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            msg = "the gradient of a projected loss can be taken once"
            raise RuntimeError(msg)
        scaled = [None if gradient is None else gradient.mul_(of_loss) for gradient in gradients]
        return (*scaled, None, None, None, None)


class _Gradients:
    """Gradients of the loss at x, W and b, in float32, as far as the chunks so far make them.

    Smoothing gives every word the same share at every position, -e / V, so its part is
    written once and not added to the gradient of each score.
    """

    def __init__(
        self,
        counted_RD: Tensor,
        kept_R: Tensor | None,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        mass: float,
        mean_D: Tensor,
    ) -> None:
        """Begin with the part of the smoothing."""
        self.kept_R = kept_R
        share = mass / len(weight_VD)
        sum_D = counted_RD.sum(0, dtype=torch.float32)
        self.of_weight_VD = (-share * sum_D).expand(len(weight_VD), -1).contiguous()
        self.of_x_RD = (-mass * mean_D).expand(counted_RD.shape).contiguous()
        self.of_bias_V: Tensor | None = None
        if bias_V is not None:
            self.of_bias_V = torch.zeros_like(bias_V, dtype=torch.float32)
            self.of_bias_V -= share * (len(counted_RD) if kept_R is None else kept_R.sum())
        self.at_once = WORDS if weight_VD.device.type == "cpu" else len(weight_VD)

    def add(self, here: slice, gradient_rV: Tensor, weight_VD: Tensor, counted_rD: Tensor) -> None:
        """Add what a chunk gives.

        Args:
            here: its positions.
            gradient_rV: the gradients of its scores, but for the smoothing.
            weight_VD: in the precision of the products.
            counted_rD: what the last map read; zeros where a position does not count.
        """
        self.of_x_RD[here] += times_transposed(gradient_rV, weight_VD.t())
        for start in range(0, len(weight_VD), self.at_once):
            words = slice(start, start + self.at_once)
            self.of_weight_VD[words] += times_transposed(gradient_rV[:, words].t(), counted_rD.t())
        if self.of_bias_V is not None and self.kept_R is None:
            self.of_bias_V += gradient_rV.sum(0, dtype=torch.float32)
        elif self.of_bias_V is not None and self.kept_R is not None:
            self.of_bias_V += self.kept_R[here].to(gradient_rV.dtype) @ gradient_rV

    def all(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return them."""
        if self.kept_R is not None:
            self.of_x_RD *= self.kept_R[:, None]
        return self.of_x_RD, self.of_weight_VD, self.of_bias_V


def _normalize(score_rV: Tensor, target_r: Tensor, mass: float | None) -> Tensor:
    """Return logsumexp of each row of scores, which become their gradients in place.

    The gradients lack what smoothing gives to all words alike.

    Args:
        score_rV: scores.
        target_r: the right words.
        mass: share of the smoothing; None leaves the scores undefined.
    """
    vocabulary = score_rV.size(1)
    rows = len(score_rV)
    if score_rV.device.type == "cpu":
        rows = max(1, CACHED // vocabulary)
    full = score_rV.dtype == torch.float32
    whole = []
    scratch_rV = score_rV.new_empty((0 if full else rows, vocabulary), dtype=torch.float32)
    for part_rV, right_r in zip(score_rV.split(rows), target_r.split(rows), strict=True):
        p_rV = part_rV if full else scratch_rV[: len(part_rV)].copy_(part_rV)
        top_r1 = p_rV.amax(1, keepdim=True)
        sum_r1 = p_rV.sub_(top_r1).exp_().sum(1, keepdim=True)
        whole.append((top_r1 + sum_r1.log())[:, 0])
        if mass is not None:
            p_rV.mul_(sum_r1.reciprocal())
            p_rV.scatter_add_(1, right_r[:, None], p_rV.new_full((len(p_rV), 1), mass - 1.0))
            if not full:
                part_rV.copy_(p_rV)
    return torch.cat(whole)


def _chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    """Yield slices of like length that cover all rows, one at least."""
    count = max(1, -(-rows * vocabulary // CHUNK))
    size = max(1, -(-rows // count))
    for start in range(0, max(rows, 1), size):
        yield slice(start, start + size)
