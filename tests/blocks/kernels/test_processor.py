"""The instructions of the processor, as far as no variable forbids them, and its identity."""

from __future__ import annotations

import platform
from collections.abc import Set
from pathlib import Path
from typing import get_args

import pytest
import torch
from weft.blocks.kernels import processor
from weft.blocks.kernels.processor import (
    LIMITS,
    Instructions,
    has,
    lack_of,
    processor_identity,
    processor_name,
)

X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
stepping\t: 1
cpu MHz\t\t: 2596.122
flags\t\t: fpu sse4_2 fma avx2 avx512f nopl

processor\t: 1
vendor_id\t: AuthenticAMD
model name\t: another
flags\t\t: fpu amx_tile
"""
ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm sve bf16 cpuid
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""

VNNI = {"AVX-512", "AVX-512 VNNI", "AVX-VNNI"}
BF16 = VNNI | {"AVX-512 BF16"}
EVERYTHING = frozenset(get_args(Instructions))


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)


def with_capabilities(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let torch report these capabilities, by its names for them."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(names, True))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("avx2",), set()),
        (("avx2", "avx_vnni"), {"AVX-VNNI"}),
        (("avx2", "avx512_f", "avx512_vnni"), {"AVX-512", "AVX-512 VNNI"}),
        (("avx512_vnni", "avx512_bf16", "amx_tile"), {"AVX-512 VNNI", "AVX-512 BF16", "AMX"}),
        (("neon", "bf16"), set()),
    ],
    ids=["haswell", "alder lake", "cascade lake", "sapphire rapids", "arm"],
)
def test_instructions_are_those_that_torch_reports(
    names: tuple[str, ...], expected: Set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instruction that torch does not know of does not exist."""
    with_capabilities(monkeypatch, *names)

    assert {one for one in get_args(Instructions) if has(one)} == expected
    assert has(*get_args(Instructions)) is bool(expected)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("SSE41", set()),
        ("AVX2", set()),
        ("avx2", set()),
        ("AVX2_VNNI", {"AVX-VNNI"}),
        ("AVX512_CORE", {"AVX-512"}),
        ("AVX512_CORE_VNNI", VNNI),
        ("AVX512_CORE_BF16", BF16),
        ("AVX512_CORE_FP16", BF16),
        ("AVX10_1_512_AMX", EVERYTHING),
        ("ALL", EVERYTHING),
        ("unknown", EVERYTHING),
    ],
)
def test_a_variable_of_onednn_limits_them(
    limit: str, expected: Set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By oneDNN's page on the control of its dispatcher; other values have no effect."""
    with_capabilities(monkeypatch, "avx512_f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_tile")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX512_CORE_VNNI")

    assert {one for one in get_args(Instructions) if has(one)} == expected


def test_the_older_name_of_the_variable_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """OneDNN reads it if the newer one is not set."""
    with_capabilities(monkeypatch, "avx512_vnni")
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX2")

    assert not has("AVX-512 VNNI")
    assert lack_of("AVX-512 VNNI") == (
        "DNNL_MAX_CPU_ISA=AVX2 leaves no AVX-512 VNNI",
        "unset DNNL_MAX_CPU_ISA",
    )


def test_a_limit_is_not_to_blame_for_what_the_processor_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the variable, the instructions would be missing as well."""
    with_capabilities(monkeypatch, "avx2")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")

    assert lack_of("AVX-512 BF16", "AMX") == (
        "this processor has neither AVX-512 BF16 nor AMX",
        "",
    )


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_changes_the_identity(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest kernels may be others, so times that were measured without it do not hold."""
    identity = processor_identity()
    monkeypatch.setenv(limit, "AVX2")

    assert processor_identity() == f"{identity} {limit}=AVX2"


def described(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return the name and the identity for the given text of /proc/cpuinfo."""
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    monkeypatch.setattr(processor, "CPUINFO", path)
    return processor_name(), processor_identity()


def test_the_processor_name_is_not_sufficient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many generations are called "AMD EPYC" in virtual machines: model and flags differ."""
    name, identity = described(X86, tmp_path, monkeypatch)

    assert name == "AMD EPYC"
    for old, new in (("26", "25"), ("avx512f", "avx512f avx512_bf16"), ("fma ", "")):
        other_name, other = described(X86.replace(old, new), tmp_path, monkeypatch)
        assert other_name == name
        assert other != identity


def test_changing_values_do_not_affect_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clock rate, order of flags, system flags and other processors do not change the identity."""
    identity = described(X86, tmp_path, monkeypatch)
    for old, new in (
        ("2596.122", "3100.0"),
        ("sse4_2 fma", "fma sse4_2"),
        ("nopl", "nopl cpuid"),
        ("amx_tile", ""),
    ):
        assert described(X86.replace(old, new), tmp_path, monkeypatch) == identity


def test_arm_is_identified_by_fields_and_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ARM, fields and features define the identity; the name is the machine type."""
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    name, identity = described(ARM, tmp_path, monkeypatch)

    assert name == "aarch64"
    assert identity == "aarch64 CPU implementer=0x41 CPU part=0xd40 asimd bf16 sve"


def test_other_systems_have_fallback_identities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without /proc/cpuinfo there are fallbacks."""
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")

    assert (processor_name(), processor_identity()) == ("arm", "arm64 arm")
