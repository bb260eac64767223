"""Linear maps in int8 compute what rounded matrices and inputs give."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels import quantized
from weft.blocks.kernels.linear import linear_maps
from weft.blocks.kernels.prepacked import PackedLinear, prepack
from weft.blocks.kernels.quantized import Int8Linear, Packer, quantize

FBGEMM, ONEDNN = "int8 of FBGEMM", "int8 of oneDNN"


@pytest.fixture(
    params=[
        "integers",
        "7 bits",
        pytest.param("fbgemm", marks=pytest.mark.needs(FBGEMM)),
        pytest.param("onednn", marks=pytest.mark.needs(ONEDNN)),
        pytest.param("by_rows", marks=pytest.mark.needs(FBGEMM, ONEDNN)),
    ],
    autouse=True,
)
def pack(
    request: pytest.FixtureRequest, multiply_integers: Packer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Multiply with each of the libraries, and by the definition, also in 7 bits."""
    pack = getattr(quantized, request.param, multiply_integers)
    levels = {"integers": 127, "7 bits": 64}.get(request.param) or quantized.levels_of(
        quantized.fbgemm if request.param == "by_rows" else pack
    )
    monkeypatch.setattr(quantized, "library", lambda: quantized.Library(pack, levels))


def made(dtype: torch.dtype = torch.float32, *, bias: bool = True) -> tuple[Int8Linear, nn.Linear]:
    """Return a map in int8 and the map that it computes approximately."""
    torch.manual_seed(1)
    linear, rounded = nn.Linear(24, 40, bias), Int8Linear(24, 40, dtype)
    with torch.no_grad():
        linear.weight[3] = 0.0
        linear.weight[4] *= 1000
    for name, parameter in linear.named_parameters():
        rounded.register_parameter(name, parameter)
    return rounded, linear


def nearest(values: Tensor, levels: int = 127) -> Tensor:
    """Return a row with each value replaced by the nearest multiple of max / levels, in float64."""
    step = float(values.abs().max()) / levels
    multiples = step * torch.arange(-levels, levels + 1, dtype=torch.float64)
    return multiples[(values.double()[:, None] - multiples).abs().argmin(1)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_a_product_is_that_of_rounded_operands(
    dtype: torch.dtype, tolerance: float, *, bias: bool
) -> None:
    """Each row and each output channel has its own scale; the integers are as large as they may."""
    rounded, linear = made(dtype, bias=bias)
    x = torch.randn(2, 3, 24) * torch.tensor([1e-4, 1.0, 300.0])[:, None]

    with torch.no_grad():
        found = rounded(x)

    inputs = torch.stack([nearest(row) for row in x.reshape(-1, 24)])
    levels = quantized.library().levels
    weight = torch.stack([nearest(row, levels) for row in linear.weight.detach()])
    expected = inputs @ weight.T + (linear.bias.detach().double() if bias else 0.0)
    assert found.dtype == dtype
    assert found.shape == (2, 3, 40)
    size = inputs.abs() @ weight.abs().T + 1.0
    error = (found.double().view(6, 40) - expected).abs() / size
    # In bfloat16 the scale of a row is rounded, so single inputs may be rounded to a neighbor.
    assert float(error.max()) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_does_not_depend_on_the_others(dtype: torch.dtype) -> None:
    """The translation of a line is the same in every batch."""
    rounded, _ = made(dtype)
    x = torch.randn(9, 24) * torch.logspace(-3, 3, 9)[:, None]

    with torch.no_grad():
        together, alone = rounded(x), torch.cat([rounded(row) for row in x.split(1)])

    assert torch.equal(together, alone)


def test_unusual_rows() -> None:
    """A row of zeros gives the bias, no rows give no rows, and NaN stays in its row."""
    rounded, linear = made()
    x = torch.zeros(2, 24)
    x[1, 5] = torch.nan

    with torch.no_grad():
        zero, unknown = rounded(x)
        empty = rounded(x[:0])

    assert torch.equal(zero, linear.bias)
    assert unknown.isnan().all()
    assert empty.shape == (0, 40)


def test_large_maps_are_rounded_and_the_others_prepacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit depends on the precision of the others; shared maps stay shared."""
    limits = {torch.float32: 32, torch.bfloat16: 1000}
    either = {(name, kind): n for name in ("fbgemm", "onednn") for kind, n in limits.items()}
    monkeypatch.setattr(quantized, "LEAST", either)
    large = nn.Linear(8, 4)
    model = nn.ModuleDict({"a": large, "b": large, "small": nn.Linear(5, 6)})

    quantize(model, torch.bfloat16)
    assert type(model["a"]) is nn.Linear
    quantize(model, torch.float32)
    prepack(model, torch.float32)

    assert isinstance(model["a"], Int8Linear)
    assert model["a"] is model["b"]
    assert isinstance(model["small"], PackedLinear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_maps_of_one_input_are_one_product(dtype: torch.dtype) -> None:
    """Joined maps give the results of the single ones, also after their weights have changed."""
    maps = [made(dtype, bias=bias)[0] for bias in (True, False, True)]
    x = torch.randn(2, 3, 24)

    with torch.no_grad():
        for _ in range(2):
            for some in (maps, maps[:2]):
                for found, one in zip(linear_maps(x, *some), some, strict=True):
                    assert torch.equal(found, one(x))
            for index, one in enumerate(maps):
                assert one.weight is not None
                one.weight.mul_(index - 3.0)
                one.repack()
