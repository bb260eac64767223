"""Run the tests and measurements that need a GPU, and write a page about them: `make measure-gpu`.

    python benchmarks/measure_gpu.py                                # about half an hour on one GPU
    python benchmarks/measure_gpu.py --minutes 8 --no-install       # a machine lent for ten minutes
    python benchmarks/measure_gpu.py --device cpu --quick           # every part once, tiny sizes

The parts are ordered by what is most worth knowing.  Each runs in a process group of its own with a
time limit, in proportion to `--minutes`; what an earlier part does not use, later ones may.  A part
that hangs is killed, and its results until then are kept: results are written one by one.  After
each part the folder `--out` has README.md, results.json and the complete output of the parts.

`--no-install` runs the checkout with this Python as it is, without pip or a network: weft need not
be installed, and packages that are missing may lie as wheels in `--wheels`.  Otherwise the peers
are installed first.  Peers are torch.nn.Transformer, Hugging Face Marian and GPT-2, and Eole,
compiled on a GPU, and for decoding CTranslate2.  One that is missing or does not run on this device
is left out, with the reason.  MFU is the share of the fastest large matrix product.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from checkout import ROOT, make_site
from results import read_rows

TAIL = 12
"""Last lines of a failed part that the page shows."""
RESERVE = 5.0
"""Seconds kept for killing the last part and writing the page."""
GRACE = 2.0
"""Seconds that a killed process may take to end; one that waits for its driver may never end."""
EOLE = ("eole==0.6.4", "torch-optimi", "pyonmttok")
"""Installed without most of Eole's dependencies, which the measurements do not use."""

ON_GPU = (
    *(
        f"{name} {precision}"
        for precision in ("bfloat16", "float32")
        for name in ("weft", "weft graphs,", "Hugging Face", "Eole", "CTranslate2")
    ),
    "CTranslate2 int8, bfloat16",
)
"""Decoders that run on a GPU."""
GENERATORS = ("weft bfloat16", "weft graphs, bfloat16", "Hugging Face bfloat16")


@dataclass(frozen=True)
class Part:
    """One command of the measurement."""

    name: str
    command: Sequence[str]
    seconds: float
    """Time limit if all parts together have `SHORT` seconds."""


@dataclass
class Outcome:
    """What became of a part."""

    name: str
    failed: str = ""
    """Why it failed; empty if it did not."""
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Its lines about contestants that could not take part."""
    last: str = ""
    """Its last line; its last lines if it failed."""


def parts(device: str, *, quick: bool = False, short: bool = False) -> list[Part]:
    """Return the commands of a measurement, those that are most worth knowing first."""

    def benchmark(name: str, *options: str) -> list[str]:
        return [sys.executable, f"benchmarks/{name}.py", "--device", device, *options]

    def tests(*files: str) -> list[str]:
        pytest = [sys.executable, "-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider"]
        together = ["-n", "4"] if importlib.util.find_spec("xdist") else []
        return [*pytest, *together, "-m", "gpu", *files]

    if quick:
        train = ["--precision", "float32", "--tokens", "128", "--rounds", "1", "--forms", "shipped"]
        trained = [
            ["--sizes", "trial", *train, "--only", "torch.nn.Transformer", "Eole"],
            ["--sizes", "trial-gpt2", *train],
        ]
        decode = ["--sentences", "2", "--length", "4", "--rounds", "1", "--threads", "1"]
        return [
            Part("training", benchmark("train", *trained[0]), 60),
            Part(
                "decoding",
                benchmark("decode", *decode, "--only", "weft float32", "Eole float32"),
                60,
            ),
            Part("training GPT-2", benchmark("train", *trained[1]), 60),
            Part(
                "decoding GPT-2",
                benchmark("decode", "--generate", *decode, "--only", "weft float32"),
                60,
            ),
            Part("attention", benchmark("attention", "--quick"), 60),
            Part(
                "first update",
                benchmark("gpu", "--layers", "1", "--mode", "eager", "--tokens", "128"),
                60,
            ),
        ]
    train = ["--tokens", "25000", "--rounds", "4" if short else "8"]
    train += ["--only", "torch.nn.Transformer", "Hugging Face Marian"] if short else []
    decode = ["--sentences", "256", "--rounds", "2" if short else "5", "--only"]
    decoders = [name for name in ON_GPU if "bfloat16" in name] if short else ON_GPU
    return [
        Part("tests", tests("tests/gpu", "--deselect", "tests/gpu/test_distributed.py"), 60),
        Part("training base", benchmark("train", "--sizes", "base", *train), 110),
        Part("training big", benchmark("train", "--sizes", "big", *train), 90),
        Part("decoding", benchmark("decode", *decode, *decoders), 50),
        Part("training GPT-2", benchmark("train", "--sizes", "gpt2", *train[:4]), 50),
        Part("decoding GPT-2", benchmark("decode", "--generate", *decode, *GENERATORS), 30),
        Part(
            "distributed",
            tests("tests/gpu/test_distributed.py", "tests/runtime/train/test_trainer.py"),
            50,
        ),
        Part("attention", benchmark("attention", *(["--shapes", "12"] if short else [])), 20),
        Part("first update", benchmark("gpu"), 20),
    ]


SHORT = 480
"""Seconds for which the limits of the parts are made."""


def run(part: Part, folder: Path, environment: Mapping[str, str] | None = None) -> Outcome:
    """Run a part, and keep its output and its rows in the folder."""
    outcome, began = Outcome(part.name), time.monotonic()
    stem = folder / part.name.replace(" ", "-")
    log, rows = stem.with_suffix(".log"), stem.with_suffix(".jsonl")
    rows.unlink(missing_ok=True)
    takes_rows = part.command[1].startswith("benchmarks/")
    command = [*part.command, *(["--rows", str(rows)] if takes_rows else [])]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            code = process.wait(part.seconds)
            outcome.failed = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            outcome.failed = f"not done after {part.seconds:.0f} seconds"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also processes that the part left behind
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    outcome.seconds = time.monotonic() - began
    outcome.rows = read_rows(rows)
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    outcome.left_out = [line for line in lines if line.startswith("left out")]
    if not outcome.failed and takes_rows and not outcome.rows:
        outcome.failed = "it measured nothing"
    outcome.last = "\n".join(lines[-TAIL:] if outcome.failed else lines[-1:])
    return outcome


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


def starting_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of first updates."""
    yield "| layers | mode | seconds | graphs |"
    yield "|---" * 4 + "|"
    for row in rows:
        yield f"| {row['layers']} | {row['mode']} | {row['seconds']:.1f} | {row['graphs']} |"


def attention_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of attention; times are those of one batch."""
    yield "Milliseconds, forward and backward."
    yield ""
    head = ("kernel", "attention", "first use of a new shape (median)", "maximum")
    yield f"| {' | '.join((*head, 'later uses (median)', 'one fixed shape (median)'))} |"
    yield "|---" * 6 + "|"
    for row in rows:
        times = (
            statistics.median(row["first"]),
            max(row["first"]),
            statistics.median(row["later"]),
            statistics.median(row["fixed"]),
        )
        shown = " | ".join(f"{1000 * time_:.2f}" for time_ in times)
        yield f"| {row['kernel']} | {row['case']} | {shown} |"


TABLES = {
    "training": training_table,
    "training base": training_table,
    "training big": training_table,
    "training GPT-2": training_table,
    "attention": attention_table,
    "decoding": decoding_table,
    "decoding GPT-2": decoding_table,
    "first update": starting_table,
}


def page(facts: Mapping[str, str], outcomes: Sequence[Outcome]) -> str:
    """Return the page about a measurement, in Markdown."""
    lines = [f"# Measured on {facts['device']}", "", "`make measure-gpu` wrote this page.", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in facts.items())]
    for outcome in outcomes:
        lines += ["", f"## {outcome.name[0].upper()}{outcome.name[1:]}", ""]
        if outcome.rows:
            lines += [*TABLES[outcome.name](outcome.rows), ""]
        if outcome.failed:
            lines += [f"Failed: {outcome.failed}.", "", "```text", outcome.last, "```", ""]
        elif not outcome.rows:
            lines += [outcome.last, ""]
        lines += [*outcome.left_out, ""] if outcome.left_out else []
        lines += [f"{outcome.seconds:.0f} seconds."]
    return "\n".join(lines) + "\n"


def measure(
    chosen: Sequence[Part], folder: Path, environment: Mapping[str, str], seconds: float
) -> list[Outcome]:
    """Run parts one after the other, and end in time whatever they do.

    The limit of a part grows by the time that earlier ones did not use, and every limit is scaled
    so that together they take `seconds`; the page is written after each part.
    """
    began, scale = time.monotonic(), (seconds - RESERVE) / sum(part.seconds for part in chosen)
    facts: dict[str, str] = {"device": "unknown"}
    outcomes: list[Outcome] = []
    due = began
    for part in chosen:
        due += scale * part.seconds
        limit = max(1.0, due - time.monotonic())
        print(f"{part.name}: at most {limit:.0f} seconds", flush=True)
        outcome = run(replace(part, seconds=limit), folder, environment)
        if part.name == MACHINE:
            facts = outcome.rows[0] if outcome.rows else {**facts, "failed": outcome.last}
            if outcome.failed:  # no later part can run
                outcomes.append(outcome)
        else:
            outcomes.append(outcome)
        (folder / "README.md").write_text(page(facts, outcomes))
        written = {"machine": facts, "parts": [asdict(each) for each in outcomes]}
        (folder / "results.json").write_text(json.dumps(written, indent=2) + "\n")
        if part.name == MACHINE and outcome.failed:
            break
    return outcomes


MACHINE = "machine"


def install() -> None:
    """Install the peers as far as possible; one that cannot be installed is left out later."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    options = os.environ.get("PIP_ARGS", "").split()
    extra = ["-c", "constraints.txt", "-e", ".[benchmarks]"]
    for packages in (extra, ["--no-deps", *EOLE]):
        subprocess.run([*pip, *options, *packages], cwd=ROOT, check=False)


def main() -> int:
    """Run all parts, write the page, and return 1 if a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--minutes", type=float, default=60, help="for all parts (default: 60)")
    parser.add_argument("--no-install", action="store_true", help="install no peers")
    parser.add_argument("--wheels", type=Path, help="folder of wheels, used with --no-install")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try this program")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs/gpu")
    options = parser.parse_args()
    if options.wheels and not options.no_install:
        parser.error("--wheels needs --no-install")
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    short = 60 * options.minutes < 2 * SHORT
    chosen = parts(options.device, quick=options.quick, short=short)
    machine = [sys.executable, "benchmarks/machine.py", "--device", options.device]
    chosen.insert(0, Part(MACHINE, machine, 20))
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if not options.no_install:
            install()
        elif options.wheels or importlib.util.find_spec("weft") is None:
            wheels = sorted(options.wheels.glob("*.whl")) if options.wheels else []
            site = make_site(Path(folder) / "site", wheels)
            paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        outcomes = measure(chosen, out, environment, 60 * options.minutes)
    print(f"wrote {out / 'README.md'}")
    failed = [outcome.name for outcome in outcomes if outcome.failed]
    print(f"failed: {', '.join(failed)}" if failed else "all parts were measured")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
