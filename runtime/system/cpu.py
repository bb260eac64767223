"""Name and identity of the processor, as keys of measurements that hold for one machine."""

from __future__ import annotations

import platform
from pathlib import Path

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
