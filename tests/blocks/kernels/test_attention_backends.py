"""Attention backends: each equals the plain backend, and the requested one is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.kernels import attention_backends as backends
from weft.blocks.kernels.attention import attend, core_for, weigh
from weft.blocks.kernels.attention_backends import BY_RULE, Core

FLEX: dict[str, Core] = {"*": "flex"}
MASK = torch.tensor([[True, False, True, True], [True, True, True, False]])


def drawn(heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries with 4 heads, keys and values with `heads`, 4 positions, width 8."""
    generator = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return normal(2, 4, 4, 8), normal(2, heads, 4, 8), normal(2, heads, 4, 8)


def by_weights(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Tensor:
    """Return the values weighted by the attention weights."""
    weight = weigh(query, key, *rest, **options)
    return weight @ value.repeat_interleave(query.size(1) // key.size(1), 1)


def near(query: Tensor, key: Tensor, row: Tensor) -> Tensor:
    """Return whether a query may attend to a key: the mask of a window, in the first row."""
    return ((query - key).abs() <= 1) | (row > 0)


def bent(score: Tensor) -> Tensor:
    """Return bounded scores."""
    return torch.tanh(score) * 2


BIAS = torch.linspace(-1, 1, 64).view(1, 4, 4, 4)


SLOW_FLEX = pytest.param("flex", marks=pytest.mark.slow)  # torch traces each case


@pytest.mark.parametrize("backend", ["fused", "plain", "blocked", SLOW_FLEX])
@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"pairs": near},
        {"causal": True, "pairs": near},
        {"scale": 0.7},
        {"bias": BIAS},
        {"bias": BIAS[:, :1], "causal": True},
        {"score": bent, "inner": BIAS, "bias": 1 - BIAS, "causal": True, "elementwise": True},
    ],
    ids=lambda options: " ".join(options).replace("pairs", "window") or "full",
)
@pytest.mark.parametrize("masked", [False, True], ids=["all", "mask"])
@pytest.mark.filterwarnings("ignore")
def test_every_backend_equals_plain_attention(
    backend: Core, heads: int, options: dict[str, Any], *, masked: bool
) -> None:
    """With all kinds of masks, shared keys and biases; without dropout."""
    query, key, value = drawn(heads)
    mask = MASK if masked else None

    found = attend(query, key, value, mask, cores={"*": backend}, **options)

    options.pop("elementwise", None)
    expected = by_weights(query, key, value, mask, **options)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("heads", [4, 2])
def test_functions_of_scores_and_weights_equal_the_definition(heads: int) -> None:
    """softmax(score(q k^T + inner) + bias), then a function of the weights, in loops."""
    query, key, value = drawn(heads)
    inner, bias = BIAS, (1 - BIAS[:, :1]).expand(2, -1, -1, -1)

    def halved(weight: Tensor) -> Tensor:
        return weight / 2

    found = attend(
        query,
        key,
        value,
        MASK,
        causal=True,
        pairs=near,
        inner=inner,
        score=bent,
        bias=bias,
        after_softmax=halved,
    )

    expected = torch.zeros_like(found)
    for b, h, t in ((b, h, t) for b in range(2) for h in range(4) for t in range(4)):
        shared, part = h * heads // 4, {}
        for s in range(t + 1):
            if MASK[b, s] and (b == 1 or t - s <= 1):
                score = query[b, h, t] @ key[b, shared, s] / 8**0.5 + inner[0, h, t, s]
                part[s] = torch.exp(torch.tanh(score) * 2 + bias[b, 0, t, s])
        for s, share in part.items():
            expected[b, h, t] += share / sum(part.values()) / 2 * value[b, shared, s]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_flex_equals_plain_attention_with_all_options_combined() -> None:
    """Shared keys, masks, biases, a scale and a function of the scores."""
    query, key, value = drawn(2)
    options: dict[str, Any] = {"causal": True, "pairs": near, "bias": BIAS, "scale": 0.7}
    options |= {"score": bent, "inner": 1 - BIAS}

    found = attend(query, key, value, MASK, elementwise=True, cores=FLEX, **options)

    expected = by_weights(query, key, value, MASK, **options)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_flex_gives_zeros_for_fully_masked_rows() -> None:
    """Like the other backends."""
    nothing = torch.zeros(2, 4, dtype=torch.bool)

    assert not attend(*drawn(), nothing, cores=FLEX).any()


@pytest.mark.integration
@pytest.mark.usefixtures("own_compiler")
def test_code_compiled_for_the_cpu_does_not_need_flex() -> None:
    """Torch compiles FlexAttention only on processors with AVX2."""
    graphs = list[torch.fx.GraphModule]()

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    parts = drawn()
    compiled = torch.compile(attend, backend=backend, dynamic=True)
    with torch.no_grad():
        found, expected = compiled(*parts, MASK, cores=FLEX), attend(*parts, MASK)

    torch.testing.assert_close(found, expected)
    assert not [
        node for graph in graphs for node in graph.graph.nodes if "flex" in str(node.target)
    ]


def test_unsupported_cases_of_flex_use_another_backend() -> None:
    """On the CPU it has no backward pass, and it supports no dropout anywhere."""
    query, key, value = (part.requires_grad_() for part in drawn())

    attend(query, key, value, MASK, cores=FLEX).sum().backward()
    found = attend(query, key, value, dropout=0.5, cores=FLEX)

    assert query.grad is not None
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("masked", [False, True], ids=["all", "mask"])
@pytest.mark.parametrize("heads", [4, 2])
def test_rows_of_many_lengths_are_cut_as_the_kernel_wants_them(
    monkeypatch: pytest.MonkeyPatch, heads: int, *, masked: bool
) -> None:
    """With a substitute for the kernel, which needs CUDA: sentence by sentence, as documented."""
    from torch.nn.attention import varlen  # noqa: PLC0415 - new in torch

    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        starts_q: Tensor,
        starts_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        scale: float | None,
        window_size: tuple[int, int],
    ) -> Tensor:
        assert (max_q, max_k) == (4, 4)
        parts = []
        for b in range(len(starts_q) - 1):
            q = query[starts_q[b] : starts_q[b + 1]].transpose(0, 1)[None]
            k, v = (p[starts_k[b] : starts_k[b + 1]].transpose(0, 1)[None] for p in (key, value))
            causal = window_size == (-1, 0)
            parts.append(by_weights(q, k, v, causal=causal, scale=scale)[0].transpose(0, 1))
        return torch.cat(parts)

    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    monkeypatch.setattr("weft.blocks.kernels.attention.varlen_serves", lambda *_, **__: True)
    query, key, value = drawn(heads)
    mask, causal = (MASK, False) if masked else (None, True)

    found = attend(query, key, value, mask, causal=causal, cores={"*": "varlen"})

    expected = by_weights(query, key, value, mask, causal=causal)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("widths", "dropout", "expected"),
    [
        ((64, 64), 0.0, True),
        ((256, 256), 0.0, True),
        ((264, 264), 0.0, False),
        ((20, 20), 0.0, False),
        ((64, 32), 0.0, False),
        ((64, 64), 0.1, False),
    ],
)
def test_unsupported_heads_are_padded_for_another_backend(
    widths: tuple[int, int], dropout: float, expected: bool
) -> None:
    """The kernel raises on them, and `auto` may have chosen it for a model of any widths."""

    class OnGpu:
        dtype, device = torch.bfloat16, torch.device("cuda")

    query: Any = OnGpu()
    cores: dict[str, Core] = {"*": "fused", "unpadded": "varlen"}
    assert backends.varlen_applies(cores, query, widths, dropout=dropout) == expected
    assert not backends.varlen_applies({"*": "fused"}, query, widths, dropout=dropout)


def test_the_length_chooses_the_backend() -> None:
    """The larger of the query and key lengths counts, up to each limit."""
    cores: dict[str, Core] = {"32": "plain", "128": "fused", "*": "plain"}
    wide = torch.empty(1, 1, 1, 8)

    found = [
        core_for(cores, wide, wide.expand(1, 1, length, 8)) for length in (1, 32, 33, 128, 129)
    ]

    assert found == ["plain", "plain", "fused", "fused", "plain"]


def test_compiled_graphs_use_a_backend_that_is_chosen_for_all_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule would take the fused one here, and does so if the choice depends on lengths."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    one = torch.empty(1, 1, 1, 8)
    choices: list[dict[str, Core]] = [{"*": "plain"}, {"32": "plain", "*": "fused"}]

    assert [core_for(cores, one, one) for cores in choices] == ["plain", "fused"]


def test_without_a_choice_a_rule_decides() -> None:
    """Two products in bfloat16 on the CPU, otherwise the fused kernel."""
    full = torch.empty(1, 1, 1, 8)
    half = full.to(torch.bfloat16)

    assert [core_for(BY_RULE, one, one) for one in (full, half)] == ["fused", "plain"]


@pytest.mark.parametrize(
    ("queries", "rows", "gradients", "expected"),
    [
        (1, 128, False, "plain"),
        (16, 128, False, "plain"),
        (17, 128, False, "fused"),
        (1, 127, False, "fused"),
        (1, 128, True, "fused"),
    ],
)
def test_steps_of_many_rows_are_two_products(
    queries: int,
    rows: int,
    gradients: bool,
    expected: str,
) -> None:
    """In float32 with 16 queries or fewer and 65,536 values of keys or more, to decode."""
    key = torch.empty(1, 1, 1, 1).expand(rows, 8, 8, 8)
    with torch.set_grad_enabled(gradients):
        assert core_for(BY_RULE, key[:, :, :1].expand(-1, -1, queries, -1), key) == expected


def test_the_kernel_of_cudnn_is_left_out_on_a_gpu_only() -> None:
    """It plans anew for every shape; the flags are those of before afterwards."""
    flags = torch.backends.cuda
    before = flags.cudnn_sdp_enabled()

    with backends._planned_once(torch.device("cuda")):
        inside = flags.cudnn_sdp_enabled(), flags.flash_sdp_enabled(), flags.math_sdp_enabled()
    with backends._planned_once(torch.device("cpu")):
        on_cpu = flags.cudnn_sdp_enabled()

    assert inside == (False, True, True)
    assert (on_cpu, flags.cudnn_sdp_enabled()) == (before, before)
