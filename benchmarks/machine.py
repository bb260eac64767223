"""Describe this machine: device, driver, versions and commit; part of `measure_gpu.py`."""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

import torch
from checkout import ROOT
from results import add_rows_option, write_row
from weft.blocks.kernels.processor import processor_name

PACKAGES = ("torch", "triton", "transformers", "eole", "ctranslate2")


def first_line(*command: str) -> str:
    """Return the first line that a command prints; empty if it fails or does not exist."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].strip()


def facts(device: str) -> dict[str, str]:
    """Return what the page says about the machine, by name."""
    lines = {"device": processor_name(), "Python": platform.python_version()}
    if device == "cuda":
        lines["device"] = torch.cuda.get_device_name()
        lines["compute capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
        lines["CUDA"] = str(torch.version.cuda)
        query = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        lines["driver"] = first_line(*query) or "unknown"
    for name in PACKAGES:
        try:
            lines[name] = version(name)
        except PackageNotFoundError:
            lines[name] = "not installed"
    lines["commit"] = first_line("git", "rev-parse", "--short", "HEAD") or "unknown"
    return lines


def main() -> int:
    """Print the facts; return 1 without the device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    add_rows_option(parser)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device; --device cpu --quick tries this program without one")
        return 1
    lines = facts(options.device)
    write_row(options.rows, lines)
    print(lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
