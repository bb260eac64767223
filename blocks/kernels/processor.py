"""The processor: its instructions, as far as torch's libraries use them, its name and its identity.

Instructions decide which precision is fast and which kernels exist.  A variable of oneDNN,
`ONEDNN_MAX_CPU_ISA`, limits them, for example to test on a new processor what an old one does.
oneDNN obeys it; FBGEMM does not, so all code asks `has` here and not torch.  Torch's own kernels
have a variable too, `ATEN_CPU_CAPABILITY`, which changes their speed only.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import torch

Instructions = Literal["AVX-512", "AVX-512 VNNI", "AVX-VNNI", "AVX-512 BF16", "AMX"]
"""Instructions for products of matrices; all but the first in 8 or 16 bits."""
FAST_BFLOAT16: Final[tuple[Instructions, ...]] = ("AVX-512 BF16", "AMX")
"""With any of these, products in bfloat16 are much faster than in float32."""
_CAPABILITIES: Mapping[Instructions, str] = {
    "AVX-512": "avx512_f",
    "AVX-512 VNNI": "avx512_vnni",
    "AVX-VNNI": "avx_vnni",
    "AVX-512 BF16": "avx512_bf16",
    "AMX": "amx_tile",
}
"""Their keys in `torch.cpu.get_capabilities`."""
LIMITS: Final = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables that limit oneDNN; the first that is set counts."""
_WIDE: frozenset[Instructions] = frozenset({"AVX-512"})
_VNNI: frozenset[Instructions] = _WIDE | {"AVX-512 VNNI", "AVX-VNNI"}
_BFLOAT16: frozenset[Instructions] = _VNNI | {"AVX-512 BF16"}
_LEAVES: Mapping[str, frozenset[Instructions]] = {
    "sse41": frozenset(),
    "avx": frozenset(),
    "avx2": frozenset(),
    "avx2_vnni": frozenset({"AVX-VNNI"}),
    "avx2_vnni_2": frozenset({"AVX-VNNI"}),
    "avx512_core": _WIDE,
    "avx512_core_vnni": _VNNI,
    "avx512_core_bf16": _BFLOAT16,
    "avx512_core_fp16": _BFLOAT16,
    "avx10_1_512": _BFLOAT16,
}
"""Instructions that each value leaves; every other value leaves all of them.

Source: https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html"""

CPUINFO = Path("/proc/cpuinfo")
"""Where Linux describes processors; other systems do not have this file."""
_NAMES = ("model name", "cpu model", "Processor")
_MODEL = (
    "vendor_id",
    "cpu family",
    "model",
    *_NAMES,
    "stepping",
    "cache size",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
)
"""Fields that identify the model; others, such as the clock rate, change all the time."""
_ARITHMETIC = ("sse4", "avx", "fma", "f16c", "amx", "asimd", "sve", "sme", "bf16", "i8mm")
"""Prefixes of the flags for arithmetic; other flags vary with the version of the OS kernel."""


def has(*instructions: Instructions) -> bool:
    """Return whether the processor has any of the instructions that no variable forbids."""
    return any(_exists(instruction) and instruction in _permitted() for instruction in instructions)


def permits(instruction: Instructions) -> bool:
    """Return whether no variable forbids an instruction, which the processor may lack."""
    return instruction in _permitted()


def lack_of(*instructions: Instructions) -> tuple[str, str]:
    """Return why none of the instructions can be used, and what the user can do about it.

    Returns:
        A clause, such as "this processor has no AMX", and advice, which is empty if the processor
        has none of them.
    """
    *others, last = instructions
    missing = f"neither {', '.join(others)} nor {last}" if others else f"no {last}"
    if any(map(_exists, instructions)):
        name, value = _limit()
        return f"{name}={value} leaves {missing}", f"unset {name}"
    return f"this processor has {missing}", ""


def _exists(instruction: Instructions) -> bool:
    return bool(torch.cpu.get_capabilities().get(_CAPABILITIES[instruction], False))


def _limit() -> tuple[str, str]:
    """Return the variable that limits oneDNN, and its value; empty if none does."""
    return next(((name, value) for name in LIMITS if (value := os.environ.get(name))), ("", ""))


def _permitted() -> frozenset[Instructions]:
    return _LEAVES.get(_limit()[1].lower(), frozenset(_CAPABILITIES))


def processor_name() -> str:
    """Return the processor's marketing name, or the machine type if it is unknown."""
    record = _first_record()
    names = [record[key] for key in _NAMES if record.get(key)]
    return names[0] if names else platform.processor() or platform.machine()


def processor_identity() -> str:
    """Return one line that distinguishes processors whose fastest kernels may differ.

    The name is not enough: virtual machines of many generations report the same name.
    """
    record = _first_record()
    parts = [f"{key}={record[key]}" for key in _MODEL if record.get(key)]
    flags = (record.get("flags") or record.get("Features") or "").split()
    parts += sorted({flag for flag in flags if flag.startswith(_ARITHMETIC)})
    parts += [f"{name}={value}" for name, value in [_limit()] if name]
    return " ".join([platform.machine(), *(parts or [platform.processor()])])


def _first_record() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo; empty on other systems."""
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    record: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() and record:
            break
        key, colon, value = line.partition(":")
        if colon:
            record[key.strip()] = value.strip()
    return record
