"""Relative positions: ALiBi in loops, the buckets of T5 in integers, relative keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.attention.masks_module import Window
from weft.blocks.attention.multi_head_module import Attention
from weft.blocks.kernels.attention import attend
from weft.blocks.kernels.attention_backends import AttentionCall, plain_attend
from weft.blocks.position.relative import (
    DISENTANGLED_POSITION,
    RELATIVE_BIAS,
    DisentangledPositionParams,
    RelativeBiasParams,
)
from weft.blocks.position.relative_module import (
    Alibi,
    DisentangledPosition,
    RelativeBias,
    RelativeKeys,
    TransformerXLPosition,
    distance_buckets,
    distances,
)
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.specs.findings import SpecError
from weft.specs.load import loaded

BOTH = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
MASK = torch.tensor([[1, 1, 0, 0, 0, 1], [0, 1, 1, 1, 1, 0]]).bool()


def attention(**how: Any) -> Attention:
    """Return attention with four heads and random weights."""
    made = Attention(8, 8, 4, 3, 2, **how).double().eval()
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.5)
    return made


def by_loops(block: Attention, x: Tensor, mask: Tensor, added: Any) -> Tensor:
    """Return attention score by score, with `added(head, t, s)`; None masks a pair."""
    rows, length, shared = *x.shape[:2], block.heads // block.kv_heads
    query = block.query(x).view(rows, length, block.heads, -1)
    key, value = (
        part(x).view(rows, length, block.kv_heads, -1) for part in (block.key, block.value)
    )
    read = torch.zeros(rows, length, block.heads, value.size(-1), dtype=x.dtype)
    for b in range(rows):
        for h in range(block.heads):
            for t in range(length):
                share = {}
                for s in range(length):
                    more = added(h, t, s) if mask[b, s] else None
                    if more is not None:
                        score = query[b, t, h] @ key[b, s, h // shared] / math.sqrt(3)
                        share[s] = math.exp(score + more)
                for s, part in share.items():
                    read[b, t, h] += part / sum(share.values()) * value[b, s, h // shared]
    return block.out(read.flatten(2))


@BOTH
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("window", [None, 2])
def test_alibi_is_a_loop_over_scores(window: int | None, kv_heads: int, *, causal: bool) -> None:
    """With 4 heads, the slopes are 1/4, 1/16, 1/64 and 1/256; padding and windows mask as usual."""
    near = {} if window is None else {"mask": Window(window)}
    block = attention(position=Alibi(4), causal=causal, kv_heads=kv_heads, **near)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    slopes = [1 / 4, 1 / 16, 1 / 64, 1 / 256]

    def added(head: int, t: int, s: int) -> float | None:
        hidden = (causal and s > t) or (window is not None and abs(t - s) > window)
        return None if hidden else -slopes[head] * abs(t - s)

    with torch.no_grad():
        expected = by_loops(block, x, MASK, added)
        torch.testing.assert_close(block(x, mask=MASK), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (8, [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8]),
        (16, [2 ** (-h / 2) for h in range(1, 17)]),
    ],
)
def test_alibi_slopes_equal_those_of_the_paper(heads: int, slopes: list[float]) -> None:
    """Section 3: 1/2 to 1/256 for 8 heads; for 16 heads, every second slope is in between."""
    found = Alibi(heads)(torch.zeros(1, heads, 3, 4), torch.zeros(1, heads, 3, 4))

    expected = [[[-abs(t - s) * slope for s in range(3)] for t in range(3)] for slope in slopes]
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_queries_are_aligned_with_the_last_keys() -> None:
    """As in a decoding step, where the newest position attends to all earlier ones."""
    assert distances(2, 4, torch.device("cpu")).tolist() == [[2, 1, 0, -1], [3, 2, 1, 0]]


def bucket(distance: int, buckets: int, longest: int, *, causal: bool) -> int:
    """Return the bucket of one distance, computed in integers.

    On either side with n buckets, e = n // 2 hold one distance each.  Bucket e + j begins at
    e * (longest / e)^(j / (n - e)), so d is in it or in a later one if
    d^(n-e) * e^j >= e^(n-e) * longest^j.
    """
    n, first = (buckets, 0) if causal else (buckets // 2, buckets // 2 if distance < 0 else 0)
    d = max(distance, 0) if causal else abs(distance)
    e = n // 2
    if d < e:
        return first + d
    reached = [j for j in range(n - e) if d ** (n - e) * e**j >= e ** (n - e) * longest**j]
    return first + e + max(reached)


@BOTH
@pytest.mark.parametrize(
    ("buckets", "longest"), [(32, 128), (4, 3), (8, 20), (6, 40), (16, 1000), (64, 256)]
)
def test_buckets_grow_by_one_factor(buckets: int, longest: int, *, causal: bool) -> None:
    """Section 2.1: 32 embeddings, whose ranges grow logarithmically up to an offset of 128."""
    read = torch.arange(-300, 301)

    found = distance_buckets(read, buckets, longest, causal=causal)

    expected = [bucket(d, buckets, longest, causal=causal) for d in range(-300, 301)]
    assert found.tolist() == expected


def test_buckets_of_t5_by_hand() -> None:
    """8 with one distance each; the others begin at 8 * 2^(j/2): 8, 11.3, 16, 22.6, ... 90.5."""
    at = [0, 1, 7, 8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 9999]
    there = [0, 1, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15]
    # Distance 0 has a single bucket, so the bucket "0 after" stays empty.
    after = [16 + there[i] if d else 0 for i, d in enumerate(at)]

    assert distance_buckets(torch.tensor(at), 32, 128, causal=False).tolist() == there
    assert distance_buckets(-torch.tensor(at), 32, 128, causal=False).tolist() == after


@BOTH
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_a_relative_bias_is_a_row_of_the_table(kv_heads: int, *, causal: bool) -> None:
    """The bias of a head and bucket is added to the score, scaled or not."""
    position = RelativeBias(4, 8, 5, causal=causal)
    block = attention(position=position, causal=causal, kv_heads=kv_heads)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    table = position.weight.tolist()

    def added(head: int, t: int, s: int) -> float | None:
        row = bucket(t - s, 8, 5, causal=causal)
        return None if causal and s > t else table[row][head]

    with torch.no_grad():
        expected = by_loops(block, x, MASK, added)
        torch.testing.assert_close(block(x, mask=MASK), expected, rtol=0, atol=1e-12)


@BOTH
@pytest.mark.parametrize("scale", ["sqrt", "none"])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_relative_keys_are_added_to_the_keys(kv_heads: int, scale: str, *, causal: bool) -> None:
    """Equation 4 of Shaw et al.: e_ts = q_t (k_s + a_ts) / sqrt(d_k), a = w_clip(s - t, 2)."""
    how = {"causal": causal, "kv_heads": kv_heads, "scale": scale}
    position = RelativeKeys(3, 2, causal=causal)
    block = attention(position=position, **how)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    table = position.weight
    assert table.shape == ((3, 3) if causal else (5, 3))

    found = block(x, mask=MASK)

    query = block.query(x).view(2, 6, 4, 3)
    key, value = (
        part(x).view(2, 6, kv_heads, -1).repeat_interleave(4 // kv_heads, 2)
        for part in (block.key, block.value)
    )
    score = torch.full((2, 4, 6, 6), -math.inf, dtype=torch.float64)
    for t in range(6):
        for s in range(t + 1 if causal else 6):
            own = table[2 + max(-2, min(s - t, 2))]
            score[:, :, t, s] = (query[:, t] * (key[:, s] + own)).sum(-1)
    score = score.masked_fill(~MASK[:, None, None], -math.inf)
    share = (score / (math.sqrt(3) if scale == "sqrt" else 1)).softmax(-1).nan_to_num(0.0)
    read = torch.einsum("bhts,bshv->bthv", share, value)
    torch.testing.assert_close(found, block.out(read.flatten(2)), rtol=0, atol=1e-12)


def test_fresh_tables_add_nothing() -> None:
    """Initially, attention does not depend on distances."""
    position = RelativeBias(4)
    block, plain = attention(position=position), attention()
    position.initialize(torch.Generator())
    plain.load_state_dict(
        {path: weight for path, weight in block.state_dict().items() if "position" not in path}
    )
    x = torch.randn(2, 6, 8, dtype=torch.float64)

    torch.testing.assert_close(block(x), plain(x), rtol=0, atol=1e-12)


@BOTH
@pytest.mark.parametrize("each", [False, True], ids=["one for all", "one for each sequence"])
@pytest.mark.parametrize("mask", [None, MASK[:, :5]], ids=["no padding", "padding"])
def test_two_products_add_the_bias_that_the_fused_kernel_adds(
    mask: Tensor | None, *, each: bool, causal: bool
) -> None:
    """Also for heads that share a key; fully masked rows give zeros and finite gradients."""
    mask = None if mask is None else mask & torch.tensor([[True], [False]])
    query = torch.randn(2, 4, 5, 3, dtype=torch.float64, requires_grad=True)
    key, value = torch.randn(2, 2, 2, 5, 3, dtype=torch.float64)
    bias = torch.randn(2 if each else 1, 4, 5, 5, dtype=torch.float64, requires_grad=True)

    fused = attend(query, key, value, mask, causal=causal, bias=bias)
    gradients = torch.autograd.grad((fused * fused).sum(), [query, bias], retain_graph=True)

    wide = None if mask is None else mask[:, None, None, :]
    whole = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    plain = plain_attend(AttentionCall(query, *whole, wide, causal=causal, bias=bias))
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-12)
    expected = torch.autograd.grad((plain * plain).sum(), [query, bias])
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-12)
    if mask is not None:
        assert (fused[1] == 0).all()
    half = attend(
        query.bfloat16(), key.bfloat16(), value.bfloat16(), mask, causal=causal, bias=bias
    )
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), plain, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("how", "problem", "help_"),
    [
        ({"buckets": 3}, "buckets is 3, but it must be an even number of at least 4", "use 4"),
        ({"buckets": 2}, "buckets is 2, but it must be", "use 4 buckets"),
        ({"buckets": 1, "causal": True}, "buckets is 1, but it must be at least 2", "use 2"),
        ({"max_distance": 8}, "max_distance is 8, but it must be above 8", "above 8"),
        ({"max_distance": 16, "causal": True}, "max_distance is 16, but", "above 16"),
    ],
    ids=str,
)
def test_buckets_that_cannot_be_are_refused(how: dict[str, Any], problem: str, help_: str) -> None:
    """Half of the buckets hold one distance each, and the others must reach further."""
    with pytest.raises(ValueError, match=problem) as caught:
        RELATIVE_BIAS.arguments(RelativeBiasParams(**how), {"heads": 2})

    assert help_ in caught.value.args[1]


@BOTH
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_transformer_xl_positions_follow_the_equation(kv_heads: int, *, causal: bool) -> None:
    """Section 3.3 of Dai et al.: (q + u) k + (q + v) W R[t - s], each distance encoded by hand."""
    position = TransformerXLPosition(4, 3, 6)
    block = attention(position=position, causal=causal, kv_heads=kv_heads)
    x = torch.randn(2, 6, 8, dtype=torch.float64)

    def encoded(distance: int) -> Tensor:
        angles = [distance / 10_000 ** (2 * i / 6) for i in range(3)]
        waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        return (position.distance.weight @ torch.tensor(waves, dtype=torch.float64)).view(4, 3)

    query = block.query(x).view(2, 6, 4, 3)
    key, value = (
        part(x).view(2, 6, kv_heads, -1).repeat_interleave(4 // kv_heads, 2)
        for part in (block.key, block.value)
    )
    score = torch.full((2, 4, 6, 6), -math.inf, dtype=torch.float64)
    for t in range(6):
        for s in range(t + 1 if causal else 6):
            content = ((query[:, t] + position.content_bias) * key[:, s]).sum(-1)
            place = ((query[:, t] + position.position_bias) * encoded(t - s)).sum(-1)
            score[:, :, t, s] = (content + place) / math.sqrt(3)
    read = torch.einsum("bhts,bshv->bthv", score.softmax(-1), value)
    # Encodings are computed in float32, with 24 bits.
    torch.testing.assert_close(block(x), block.out(read.flatten(2)), rtol=0, atol=1e-6)


@BOTH
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_disentangled_positions_follow_the_equation(kv_heads: int, *, causal: bool) -> None:
    """Section 3.1 of He et al.: content to position and position to content, one pair at a time."""
    position = DisentangledPosition(4, 3, 5, buckets=2)
    block = attention(position=position, causal=causal, kv_heads=kv_heads)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    vectors = {-2: 0, -1: 1, 0: 2, 1: 3}  # from i - j, clipped, to the row

    query = block.query(x).view(2, 6, 4, 3)
    key, value = (
        part(x).view(2, 6, kv_heads, -1).repeat_interleave(4 // kv_heads, 2)
        for part in (block.key, block.value)
    )
    score = torch.full((2, 4, 6, 6), -math.inf, dtype=torch.float64)
    for i in range(6):
        for j in range(i + 1 if causal else 6):
            vector = position.weight[vectors[max(-2, min(1, i - j))]]
            place_query, place_key = position.query(vector), position.key(vector)
            score[:, :, i, j] = (
                (query[:, i] * key[:, j]).sum(-1)
                + (query[:, i] * place_key.view(4, 3)).sum(-1)
                + (key[:, j] * place_query.view(4, 3)).sum(-1)
            ) / math.sqrt(3)
    read = torch.einsum("bhts,bshv->bthv", score.softmax(-1), value)
    torch.testing.assert_close(block(x), block.out(read.flatten(2)), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"buckets": 1, "max_distance": 9}, "buckets is 1, but logarithmic ones need at least 2"),
        ({"buckets": 8, "max_distance": 5}, "max_distance is 5, but it must be above 5"),
    ],
)
def test_logarithmic_buckets_that_cannot_be_are_refused(how: dict[str, Any], problem: str) -> None:
    """Half of the buckets hold one distance each, and the others must reach further."""
    with pytest.raises(ValueError, match=problem):
        DISENTANGLED_POSITION.arguments(DisentangledPositionParams(**how), {"heads": 2, "d_k": 4})


@pytest.mark.parametrize("position", ["alibi@1", "relative_bias@1", "relative_keys@1", "rotary@1"])
def test_relative_positions_need_a_common_axis(position: str) -> None:
    """Positions of another sequence have no distance to those of the queries."""
    use = {"use": "attention@1", "params": {"heads": 2}, "fill": {"position": {"use": position}}}
    spec: dict[str, Any] = {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time", "S": "time"},
        "inputs": {"x": "f[B T 8]", "memory": "f[B S 8]"},
        "outputs": {"y": "node.y"},
        "nodes": {"node": {**use, "in": {"x": "x", "memory": "memory"}}},
    }

    with pytest.raises(SpecError, match="but S at port 'memory'"):
        check(loaded(spec).form, registry())
    spec["inputs"]["memory"] = "f[B T 8]"
    assert check(loaded(spec).form, registry()).parameters() > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "how",
    [
        {"position": Alibi(4), "mask": Window(2), "causal": True, "kv_heads": 1},
        {"position": RelativeBias(4)},
        {"position": RelativeKeys(3, 3, causal=True), "causal": True, "kv_heads": 2},
        {"position": TransformerXLPosition(4, 3, 6), "causal": True},
        {"position": DisentangledPosition(4, 3, 5, 4, 9)},
    ],
    ids=["alibi", "relative bias", "relative keys", "transformer xl", "disentangled"],
)
def test_one_graph_serves_every_size(
    how: dict[str, Any], compiles_once: Callable[[nn.Module], None]
) -> None:
    """Compiled without graph breaks, and not recompiled for other batch sizes or lengths."""
    compiles_once(attention(**how))
