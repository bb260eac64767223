"""Run the tests and measurements that need a GPU, and write a page about them: `make measure-gpu`.

    python benchmarks/measure_gpu.py                         # about half an hour on one GPU
    python benchmarks/measure_gpu.py --device cpu --quick    # every part once, with tiny sizes

Each part runs in its own process with a time limit, so a part that fails does not end the others.
Attention kernels are measured on shapes that vary and on one that does not (`attention.py`).
The folder `--out` receives README.md, results.json and the complete output of each part.  Peers
are torch.nn.Transformer, Hugging Face Marian and Eole, compiled on a GPU, and for decoding
CTranslate2; `make measure-gpu` installs them.  One that cannot be installed or does not run on this
device is left out, with the reason.  MFU is the share of the fastest large matrix product.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHIPPED = ("torch", "triton", "transformers", "eole", "ctranslate2")
"""Packages whose versions the page names."""
TAIL = 12
"""Last lines of a failed part that the page shows."""


ON_GPU = (
    *(
        f"{name} {precision}"
        for name in ("weft", "weft graphs,", "Hugging Face", "Eole", "CTranslate2")
        for precision in ("float32", "bfloat16")
    ),
    "CTranslate2 int8, bfloat16",
)
"""Decoders that run on a GPU."""


@dataclass(frozen=True)
class Part:
    """One command of the measurement."""

    name: str
    command: Sequence[str]
    seconds: float
    """Time limit."""


@dataclass
class Outcome:
    """What became of a part."""

    name: str
    failed: str = ""
    """Why it failed; empty if it did not."""
    seconds: float = 0.0
    found: Any = None
    """The JSON on its last line."""
    left_out: list[str] = field(default_factory=list)
    """Its lines about contestants that could not take part."""
    last: str = ""
    """Its last line that is not JSON."""


def parts(device: str, *, quick: bool) -> list[Part]:
    """Return the commands of a measurement."""
    here = [sys.executable, "benchmarks/train.py", "--device", device]
    decode = [sys.executable, "benchmarks/decode.py", "--device", device]
    start = [sys.executable, "benchmarks/gpu.py", "--device", device]
    attention = [sys.executable, "benchmarks/attention.py", "--device", device]
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "gpu", "tests/gpu"]
    if quick:
        here += ["--sizes", "trial", "--precision", "float32", "--tokens", "128", "--rounds", "1"]
        here += ["--only", "torch.nn.Transformer", "Eole", "--forms", "shipped"]
        decode += ["--sentences", "2", "--length", "4", "--rounds", "1", "--beams", "1"]
        decode += ["--threads", "1", "--only", "weft float32", "Eole float32"]
        start += ["--layers", "1", "--mode", "eager", "--tokens", "128"]
        attention += ["--quick"]
    else:
        here += ["--sizes", "base", "big", "--tokens", "25000", "--rounds", "8"]
        decode += ["--sentences", "256", "--only", *ON_GPU]
    return [
        Part("tests", tests, 1800),
        Part("training", here, 3600),
        Part("attention", attention, 1800),
        Part("decoding", decode, 1800),
        Part("first update", start, 1200),
    ]


def run(part: Part, folder: Path) -> Outcome:
    """Run a part, and keep its output in the folder."""
    outcome, began = Outcome(part.name), time.monotonic()
    log = folder / f"{part.name.replace(' ', '-')}.log"
    with log.open("w") as file:
        try:
            code = subprocess.run(
                part.command, cwd=ROOT, stdout=file, stderr=file, timeout=part.seconds, check=False
            ).returncode
            outcome.failed = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            outcome.failed = f"not done after {part.seconds:.0f} seconds"
    outcome.seconds = time.monotonic() - began
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    outcome.left_out = [line for line in lines if line.startswith("left out")]
    for line in reversed(lines):
        if line.startswith(("[", "{")) and outcome.found is None:
            with suppress(ValueError):
                outcome.found = json.loads(line)
        elif not outcome.last:
            outcome.last = line
    if outcome.failed:
        outcome.last = "\n".join(lines[-TAIL:])
    elif part.name != "tests" and not outcome.found:
        outcome.failed = "it measured nothing"
    return outcome


def machine(device: str) -> dict[str, str]:
    """Return what the page says about the machine, by name."""
    import torch
    from weft.blocks.kernels.processor import processor_name

    found = {"device": processor_name(), "Python": platform.python_version()}
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
        major, minor = torch.cuda.get_device_capability()
        found["compute capability"] = f"{major}.{minor}"
        found["CUDA"] = str(torch.version.cuda)
        if smi := shutil.which("nvidia-smi"):
            asked = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            found["driver"] = done.stdout.split("\n")[0].strip()
    for name in SHIPPED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found["commit"] = git.stdout.strip() or "unknown"
    return found


def training_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of training speeds."""
    head = ("precision", "tokens", "", "target tokens/s", "range", "Weft is x times as fast")
    yield f"| {' | '.join((*head, 'MFU %', 'peak MB'))} |"
    yield "|---" * 8 + "|"
    for row in rows:
        speeds = row["speeds"]
        yield (
            f"| {row['precision']} | {row['tokens']} | {row['name']} | {row['median']:.0f} "
            f"| {min(speeds):.0f} to {max(speeds):.0f} | {row['ratio']:.2f} "
            f"| {100 * row['share']:.0f} | {row['peak']:.0f} |"
        )


def decoding_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of decoding; ratios are to Weft of the same precision."""
    yield "| | beam | seconds (median) | range | Weft is x times as fast |"
    yield "|---" * 5 + "|"
    medians = {(row["name"], row["beam"]): statistics.median(row["seconds"]) for row in rows}
    for row in rows:
        precision, median = row["name"].split()[-1], medians[row["name"], row["beam"]]
        ours = medians.get((f"weft {precision}", row["beam"]))
        ratio = "" if ours is None else f"{median / ours:.2f}"
        between = f"{min(row['seconds']):.3f} to {max(row['seconds']):.3f}"
        yield f"| {row['name']} | {row['beam']} | {median:.3f} | {between} | {ratio} |"


def starting_table(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of first updates."""
    yield "| layers | mode | seconds | graphs |"
    yield "|---" * 4 + "|"
    for row in found["first_step"]:
        yield f"| {row['layers']} | {row['mode']} | {row['seconds']:.1f} | {row['graphs']} |"


def attention_table(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of attention; times are those of one batch."""
    size = f"{found['tokens']} positions in {found['precision']}"
    yield f"Milliseconds, forward and backward, {size}."
    yield ""
    head = ("kernel", "attention", "first use of a new shape (median)", "maximum")
    yield f"| {' | '.join((*head, 'later uses (median)', 'one fixed shape (median)'))} |"
    yield "|---" * 6 + "|"
    for row in found["rows"]:
        times = (
            statistics.median(row["first"]),
            max(row["first"]),
            statistics.median(row["later"]),
            statistics.median(row["fixed"]),
        )
        shown = " | ".join(f"{1000 * each:.2f}" for each in times)
        yield f"| {row['kernel']} | {row['case']} | {shown} |"


TABLES = {
    "training": training_table,
    "attention": attention_table,
    "decoding": decoding_table,
    "first update": starting_table,
}


def page(facts: Mapping[str, str], outcomes: Sequence[Outcome]) -> str:
    """Return the page about a measurement, in Markdown."""
    lines = [f"# Measured on {facts['device']}", "", "`make measure-gpu` wrote this page.", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in facts.items())]
    for outcome in outcomes:
        lines += ["", f"## {outcome.name.capitalize()}", ""]
        if outcome.failed:
            lines += [f"Failed: {outcome.failed}.", "", "```text", outcome.last, "```"]
            continue
        if outcome.name in TABLES:
            lines += TABLES[outcome.name](outcome.found)
        else:
            lines += [outcome.last]
        lines += ["", *outcome.left_out] if outcome.left_out else []
        lines += ["", f"{outcome.seconds:.0f} seconds."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all parts, write the page, and return 1 if a part failed."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try this program")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs/gpu")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device; --device cpu --quick tries this program without one")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    facts, outcomes = machine(options.device), []
    for part in parts(options.device, quick=options.quick):
        if part.name == "tests" and options.device == "cpu":
            continue  # they need a GPU
        print(f"{part.name}: at most {part.seconds / 60:.0f} minutes", flush=True)
        outcomes.append(run(part, options.out))
        (options.out / "README.md").write_text(page(facts, outcomes))
        written = {"machine": facts, "parts": [asdict(one) for one in outcomes]}
        (options.out / "results.json").write_text(json.dumps(written, indent=2) + "\n")
    print(f"wrote {options.out / 'README.md'}")
    failed = [one.name for one in outcomes if one.failed]
    print(f"failed: {', '.join(failed)}" if failed else "all parts were measured")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
