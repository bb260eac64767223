"""Processor: what tells it from others, for measurements that hold on one machine alone."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
"""Where Linux describes processors; other systems have none."""
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
"""What says which model it is; its clock, say, changes all the time."""
_ARITHMETIC = ("sse4", "avx", "fma", "f16c", "amx", "asimd", "sve", "sme", "bf16", "i8mm")
"""Beginnings of the flags that say how it can compute; others differ by the kernel's version."""


def processor_name() -> str:
    """Return the processor's name as its maker gives it, or what kind of machine this is."""
    held = _first_record()
    names = [held[key] for key in _NAMES if held.get(key)]
    return names[0] if names else platform.processor() or platform.machine()


def processor_identity() -> str:
    """Return one line that differs between processors on which other kernels may be fastest.

    A name alone is not enough: virtual machines of many generations call theirs alike.
    """
    held = _first_record()
    parts = [f"{key}={held[key]}" for key in _MODEL if held.get(key)]
    flags = (held.get("flags") or held.get("Features") or "").split()
    parts += sorted({flag for flag in flags if flag.startswith(_ARITHMETIC)})
    return " ".join([platform.machine(), *(parts or [platform.processor()])])


def _first_record() -> dict[str, str]:
    """Return what Linux says of the first processor, or nothing."""
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
