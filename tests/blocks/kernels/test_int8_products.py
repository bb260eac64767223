"""Products in int8 are exact, and a library that is not exact is not used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.kernels import quantized
from weft.blocks.kernels.processor import LIMITS
from weft.blocks.kernels.quantized import (
    Packer,
    Product,
    by_rows,
    can_quantize,
    fbgemm,
    levels_of,
    library,
    onednn,
    suits_float32,
)


@pytest.fixture(autouse=True)
def _choose_again(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Choose the library anew in the test, and after it; no variable forbids instructions."""
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.parametrize(
    "pack",
    [
        pytest.param(fbgemm, marks=pytest.mark.needs("int8 of FBGEMM")),
        pytest.param(onednn, marks=pytest.mark.needs("int8 of oneDNN")),
    ],
)
def test_a_product_is_that_of_the_integers(pack: Packer) -> None:
    """Sums are exact; each is multiplied by the scale of its channel."""
    torch.manual_seed(1)
    most = levels_of(pack)
    rounded_OI = torch.randint(-most, most + 1, (33, 70), dtype=torch.int8)
    scale_O = torch.rand(33) + 0.5
    integers_RI = torch.randint(-127, 128, (9, 70))

    found_RO = pack(rounded_OI, 127 * scale_O)(integers_RI / 127)

    expected_RO = (integers_RI @ rounded_OI.long().T).double() * scale_O.double()
    torch.testing.assert_close(found_RO.double(), expected_RO, rtol=1e-6, atol=1e-4)


@pytest.mark.needs("int8 of FBGEMM", "int8 of oneDNN")
def test_products_of_few_and_of_many_rows_have_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A translation does not depend on the number of rows; wide products switch libraries."""
    monkeypatch.setattr(quantized, "WIDE", 40)
    monkeypatch.setattr(quantized, "MANY", 5)
    torch.manual_seed(1)
    most = levels_of(fbgemm)
    scale_O = torch.rand(40)
    rounded_OI = torch.randint(-most, most + 1, (40, 600), dtype=torch.int8)
    x_RI = torch.rand(300, 600) * 2 - 1

    product = by_rows(rounded_OI, scale_O)

    together = product(x_RI)
    assert torch.equal(together, torch.cat([product(few) for few in x_RI.split(3)]))
    assert torch.equal(together, onednn(rounded_OI, scale_O)(x_RI))
    assert torch.equal(together, fbgemm(rounded_OI, scale_O)(x_RI))


def _saturating(rounded_OI: Tensor, scale_O: Tensor) -> Product:
    """Multiply as processors do that add pairs of products in 16 bits."""

    def product(x_RI: Tensor) -> Tensor:
        unsigned_RI = (127 * x_RI).round().int() + 128
        pairs = (unsigned_RI[:, None, :] * rounded_OI.int()).unflatten(2, (-1, 2)).sum(3)
        sums_RO = pairs.clamp(-32768, 32767).sum(2) - 128 * rounded_OI.int().sum(1)
        return sums_RO * scale_O / 127

    return product


def _missing(rounded_OI: Tensor, scale_O: Tensor) -> Product:
    """Fail as torch does without the library."""
    raise NotImplementedError


def _wrong(rounded_OI: Tensor, scale_O: Tensor) -> Product:
    """Give sums that are off by one."""
    return lambda x_RI: x_RI @ rounded_OI.float().T * scale_O + 1


@pytest.mark.parametrize("pack", [_wrong, _missing])
def test_a_library_that_is_not_exact_is_not_used(
    pack: Packer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with 8 nor with 7 bits."""
    assert levels_of(pack) == 0
    monkeypatch.setattr(quantized, "fbgemm", pack)
    if levels_of(onednn):
        assert library() == (onednn, levels_of(onednn))
    library.cache_clear()
    monkeypatch.setattr(quantized, "onednn", pack)
    assert not can_quantize()


def test_sums_in_16_bits_leave_7_bits_for_the_matrix() -> None:
    """2 * 255 * 64 = 32,640 is less than 2^15; with 65 it would be 33,150."""
    assert levels_of(_saturating) == 64
    ones = torch.ones(1, 2, dtype=torch.int8)
    x_RI = torch.ones(1, 2)

    exact, cut_off = (
        (127 * _saturating(levels * ones, torch.ones(1))(x_RI)).round() for levels in (64, 65)
    )

    assert (exact.item(), 2 * 127 * 65 - cut_off.item()) == (2 * 127 * 64, 33_150 - 32_767)


def test_a_limit_of_the_instructions_holds_for_fbgemm_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """FBGEMM itself does not obey it, and old processors would not be simulated."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")

    assert levels_of(fbgemm) == 0


def test_the_choice_does_not_depend_on_the_default_device() -> None:
    """Models with these products are constructed on the meta device."""
    expected = library()
    library.cache_clear()
    with torch.device("meta"):
        assert library() == expected


@pytest.mark.parametrize("amx", [True, False])
def test_amx_is_used_where_there_is_one(amx: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only oneDNN multiplies with it."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_tile": amx})
    monkeypatch.setattr(quantized, "levels_of", lambda _: 127)

    assert library() == (onednn if amx else by_rows, 127)
    assert suits_float32() is not amx


def test_inputs_of_onednn_are_unsigned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed ones take a loop that is 200 times slower where a processor has VNNI but no AMX."""
    given: list[tuple[torch.dtype, int]] = []

    class Recording:
        """The kernels of oneDNN, whose inputs are noted."""

        def qlinear_prepack(self, matrix: Tensor, _: object) -> Tensor:
            return matrix

        def qlinear_pointwise(self, x: Tensor, _: float, zero: int, *__: object) -> Tensor:
            given.append((x.dtype, zero))
            return x

    monkeypatch.setattr(torch.ops, "onednn", Recording())

    found = onednn(torch.ones(4, 24, dtype=torch.int8), torch.ones(4))(torch.tensor([[-1.0, 0, 1]]))

    assert given == [(torch.uint8, 128)]
    assert found.tolist() == [[1, 128, 255]]
