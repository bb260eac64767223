"""Products in parts of rows: the values are exact, and there are few part sizes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from weft.blocks.kernels import linear as product
from weft.blocks.kernels.few_shapes import FEWEST, SMALLEST, STEPS, parts
from weft.blocks.kernels.linear import LinearMap, linear

HALF = torch.bfloat16


def test_parts_hold_all_rows_and_their_sizes_are_few() -> None:
    """For up to 20,000 rows: few parts, little padding, a short list of sizes."""
    sizes: set[int] = set()
    for count in range(1, 20_000):
        found = list(parts(count))
        assert 0 <= sum(found) - count < SMALLEST
        assert len(found) <= 4
        assert sum(found[:-1]) < count
        sizes |= set(found)
    # Multiples of 32 up to 512, and 16 sizes for each of the six larger powers of two.
    assert len(sizes) <= 512 // SMALLEST + 6 * STEPS


def learned(
    compute: Callable[[Tensor, Tensor, Tensor | None], Tensor], inputs: tuple[Any, ...]
) -> list[Tensor]:
    """Return the output and the gradients of a map, under autocast as in training."""
    leaves = [None if one is None else one.clone().requires_grad_() for one in inputs]
    with torch.autocast("cpu", HALF):
        y = compute(*leaves)  # type: ignore[arg-type]
    torch.manual_seed(2)
    y.backward(torch.randn_like(y))
    gradients = [leaf.grad for leaf in leaves if leaf is not None]
    assert all(gradient is not None for gradient in gradients)
    return [y.detach(), *(gradient for gradient in gradients if gradient is not None)]


@pytest.mark.parametrize("shape", [(FEWEST,), (7, 43), (1000,), (1531,)], ids=str)
@pytest.mark.parametrize("kind", [torch.float32, HALF], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
def test_values_and_gradients_equal_exact_products(
    shape: tuple[int, ...], kind: torch.dtype, *, biased: bool
) -> None:
    """Up to bfloat16 rounding, against float64 products of the rounded operands."""
    torch.manual_seed(1)
    x, weight = torch.randn(*shape, 24, dtype=kind), torch.randn(20, 24) / 5
    bias = torch.randn(20) if biased else None

    found = learned(linear, (x, weight, bias))

    def exact(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            offset = None if bias is None else bias.to(HALF).double()
            return F.linear(x.to(HALF).double(), weight.to(HALF).double(), offset).to(HALF)

    wanted = learned(exact, (x, weight, bias))
    assert found[0].dtype == HALF
    assert [one.dtype for one in found[1:]] == [one.dtype for one in wanted[1:]]
    for one, other in zip(found, wanted, strict=True):
        largest = other.abs().max().item()
        torch.testing.assert_close(one, other, rtol=0.01, atol=0.01 * largest)


def test_rows_go_in_parts_only_where_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for few rows, in float32, on another device, or in compiled graphs."""
    seen: list[torch.Size] = []
    inner = product._IN_PARTS

    def spy(x_RI: Tensor, *given: Any) -> Tensor:
        seen.append(x_RI.shape)
        return inner.times(x_RI, *given)

    monkeypatch.setattr(product, "_IN_PARTS", inner._replace(times=spy))
    layer = LinearMap(6, 4)
    layer(torch.randn(300, 6))
    with torch.autocast("cpu", HALF):
        layer(torch.randn(FEWEST - 1, 6))
        layer.to("meta")(torch.randn(300, 6, device="meta"))
    assert seen == []
    layer.to_empty(device="cpu")
    with torch.autocast("cpu", HALF):
        layer(torch.randn(300, 6))
    assert seen == [(300, 6)]


@pytest.mark.slow
def test_a_compiled_map_has_one_graph_for_few_rows_and_many() -> None:
    """The check of the number of rows must not become part of the graph."""
    layer, graphs = LinearMap(6, 4), list[torch.fx.GraphModule]()

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(layer, backend=backend, dynamic=True)
    with torch.no_grad(), torch.autocast("cpu", HALF):
        for count in (5, FEWEST + 7, 9, 3 * FEWEST):
            compiled(torch.randn(count, 6))
    assert len(graphs) == 1


class Info(ctypes.Structure):
    """Memory statistics of glibc."""

    # In the order of glibc; allocated bytes are in uordblks and in hblkhd.
    _fields_ = [(f"field_{at}", ctypes.c_size_t) for at in range(10)]


def in_use() -> int:
    """Return the number of allocated bytes."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Info
    info = libc.mallinfo2()
    return int(info.field_7 + info.field_4)


@pytest.mark.integration
@pytest.mark.skipif(
    not (Path("/proc").is_dir() and hasattr(ctypes.CDLL(None), "mallinfo2"))
    or sys.platform != "linux"
    or not product.suits_parts(torch.zeros(FEWEST, 1, dtype=HALF), torch.zeros(1, 1, dtype=HALF)),
    reason="needs glibc and oneDNN",
)
def test_new_numbers_of_rows_take_no_memory_once_their_parts_are_known() -> None:
    """Before, each number was a new shape with machine code for the three products of a map."""
    layer = LinearMap(64, 64)

    def update(count: int) -> None:
        with torch.autocast("cpu", HALF):
            layer(torch.randn(count, 64)).sum().backward()

    # The sizes of their parts are multiples of 32, and 32.
    for count in (*range(512, 769, 32), 513):
        update(count)
    before = in_use()

    for count in range(515, 768, 13):
        update(count)

    assert in_use() - before < 1_000_000
