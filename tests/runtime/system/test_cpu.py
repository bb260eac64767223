"""Tests of the processor identity: it depends only on properties that affect speed."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from weft.runtime.system import cpu as processor
from weft.runtime.system.cpu import processor_identity, processor_name

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
