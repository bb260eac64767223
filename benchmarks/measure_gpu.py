"""Run the tests and measurements that need a GPU, and write a page about them: `make measure-gpu`.

    python benchmarks/measure_gpu.py                                # ten minutes on one GPU
    python benchmarks/measure_gpu.py --minutes 8 --no-install       # a machine that is lent
    python benchmarks/measure_gpu.py --device cpu --quick           # every part once, tiny sizes

All parts start at once: they import, build and compile at the same time, beside the tests, because
that takes most of the time.  Then they measure one at a time, those that are most worth knowing
first.  Turns begin when everything is prepared, or after `PREPARATION` of the time; tests end then,
and rows measured while another part was still preparing say so.  A turn may take its share of the
time that is left; what it does not use, later ones may.  Rows are written after every round, and a
part that hangs is killed, so that the page, results.json and the output of all parts are in the
folder `--out` in time whatever happens.

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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from checkout import ROOT, make_site
from results import READY, TURN, read_rows

TAIL = 12
"""Last lines of a failed part that the page shows."""
PREPARATION = 0.5
"""Share of the time after which turns begin even if a part is still preparing."""
RESERVE = 5.0
"""Seconds kept for killing what still runs and writing the page."""
GRACE = 2.0
"""Seconds that killed processes may take to end; one that waits for its driver may never end."""
LOOK = 0.1
"""Seconds between looks at the parts."""
COMPILERS = {"TORCHINDUCTOR_COMPILE_THREADS": "4"}
"""Processes that compile for each of some 30 processes."""
MACHINE = "machine"
"""The part whose row is about the machine."""
EOLE = ("eole==0.6.4", "torch-optimi", "pyonmttok")
"""Installed without most of Eole's dependencies, which the measurements do not use."""
DECODERS = (
    "weft bfloat16",
    "weft graphs, bfloat16",
    "Hugging Face bfloat16",
    "Eole bfloat16",
    "CTranslate2 bfloat16",
    "CTranslate2 int8, bfloat16",
)
GENERATORS = ("weft bfloat16", "weft graphs, bfloat16", "Hugging Face bfloat16")


@dataclass(frozen=True)
class Part:
    """One command of the measurement."""

    name: str
    command: Sequence[str]
    share: float = 0.0
    """Share of its turn in the time of all turns, relative to the others; 0 for tests and facts,
    which run while the others prepare."""


@dataclass
class Outcome:
    """What became of a part."""

    name: str
    failed: str = ""
    """Why it failed; empty if it did not."""
    prepared: float = 0.0
    """Seconds until its turn, or until it ended without one."""
    seconds: float = 0.0
    """Seconds of its turn."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Its lines about contestants that could not take part."""
    last: str = ""
    """Its last line; its last lines if it failed."""


def parts(device: str, *, quick: bool = False) -> list[Part]:
    """Return the commands of a measurement, in the order of their turns."""

    def benchmark(name: str, *options: str) -> list[str]:
        return [sys.executable, f"benchmarks/{name}.py", "--device", device, *options]

    def tests(*files: str) -> list[str]:
        pytest = [sys.executable, "-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider"]
        together = ["-n", "4"] if importlib.util.find_spec("xdist") else []
        return [*pytest, *together, "-m", "gpu", *files]

    train, decode = ["--tokens", "25000", "--rounds", "8"], ["--sentences", "256", "--rounds", "5"]
    sizes: Sequence[str] = ("base", "gpt2")
    decoders: Sequence[str] = DECODERS
    generators: Sequence[str] = GENERATORS
    attention, first_update = list[str](), list[str]()
    if quick:
        train = ["--precision", "float32", "--tokens", "128", "--rounds", "1", "--forms", "shipped"]
        decode = ["--sentences", "2", "--length", "4", "--rounds", "1", "--threads", "1"]
        sizes, decoders, generators = (
            ("trial", "trial-gpt2"),
            ("weft float32", "Eole float32"),
            ("weft float32",),
        )
        attention, first_update = (
            ["--quick"],
            ["--layers", "1", "--mode", "eager", "--tokens", "128"],
        )
    peers = ["--only", "torch.nn.Transformer", "Eole"] if quick else []
    tested = [
        Part("tests", tests("tests/gpu", "--deselect", "tests/gpu/test_distributed.py")),
        Part(
            "distributed",
            tests("tests/gpu/test_distributed.py", "tests/runtime/train/test_trainer.py"),
        ),
    ]
    big = [Part("training big", benchmark("train", "--sizes", "big", *train), 3)]
    return [
        Part(MACHINE, benchmark("machine")),
        *([] if quick else tested),
        Part("training base", benchmark("train", "--sizes", sizes[0], *train, *peers), 3),
        Part("decoding", benchmark("decode", *decode, "--only", *decoders), 2),
        Part("training GPT-2", benchmark("train", "--sizes", sizes[1], *train), 2),
        *([] if quick else big),
        Part(
            "decoding GPT-2", benchmark("decode", "--generate", *decode, "--only", *generators), 1
        ),
        Part("attention", benchmark("attention", *attention), 1),
        Part("first update", benchmark("gpu", *first_update), 2),
    ]


class Running:
    """A part that runs, and its files in the folder of the page."""

    def __init__(self, part: Part, folder: Path, environment: Mapping[str, str] | None) -> None:
        """Start a part in a process group of its own."""
        self.part, self.outcome = part, Outcome(part.name)
        stem = folder / part.name.replace(" ", "-")
        self.log, self.rows = stem.with_suffix(".log"), stem.with_suffix(".jsonl")
        self._ready, self._turn = stem.with_suffix(READY), stem.with_suffix(TURN)
        for path in (self.rows, self._ready, self._turn):
            path.unlink(missing_ok=True)
        self._began, self.turn_began = time.monotonic(), 0.0
        self.turn_ends = 0.0
        """When its turn ends; 0 before it."""
        takes_rows = part.command[1].startswith("benchmarks/")
        options = ["--rows", str(self.rows)] if takes_rows else []
        options += ["--in-turn"] if part.share else []
        self._measures = takes_rows
        with self.log.open("w") as file:
            self._process = subprocess.Popen(
                [*part.command, *options],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.is_running = True

    def is_ready(self) -> bool:
        """Return whether it waits for its turn, or has it."""
        return self._ready.exists()

    def begin_turn(self, seconds: float, disturbed_by: Sequence[str]) -> None:
        """Let it measure for some seconds, while others are preparing."""
        self.turn_began = time.monotonic()
        self.turn_ends = self.turn_began + seconds
        draft = self._turn.with_suffix(".draft")
        draft.write_text("\n".join(disturbed_by))
        draft.replace(self._turn)

    def has_ended(self) -> bool:
        """Return whether it has ended by itself since the last call, and note what it left."""
        code = self._process.poll()
        if not self.is_running or code is None:
            return False
        self.end(f"exit code {code}" if code else "")
        return True

    def end(self, failed: str) -> None:
        """Kill it with all its processes, and note what it left."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.is_running, outcome, now = False, self.outcome, time.monotonic()
        outcome.prepared = (self.turn_began or now) - self._began
        outcome.seconds = now - self.turn_began if self.turn_began else 0.0
        outcome.rows, outcome.failed = read_rows(self.rows), failed
        if not failed and self._measures and not outcome.rows:
            outcome.failed = "it measured nothing"
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        outcome.left_out = [line for line in lines if line.startswith("left out")]
        outcome.last = "\n".join(lines[-TAIL:] if outcome.failed else lines[-1:])

    def wait(self, seconds: float) -> None:
        """Wait until its first process has gone."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)


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
        disturbing = {name for row in outcome.rows for name in row.get("disturbed_by", ())}
        if disturbing:
            lines += [
                f"Disturbed by what was still preparing: {', '.join(sorted(disturbing))}.",
                "",
            ]
        lines += [f"{outcome.prepared:.0f} seconds of preparation, {outcome.seconds:.0f} measured."]
    return "\n".join(lines) + "\n"


def write(folder: Path, running: Sequence[Running]) -> None:
    """Write the page and the results of all parts that have ended."""
    outcomes = [each.outcome for each in running if not each.is_running]
    of_machine = [row for each in outcomes if each.name == MACHINE for row in each.rows]
    facts = {"device": "unknown", **(of_machine[0] if of_machine else {})}
    facts.pop("disturbed_by", None)
    shown = [each for each in outcomes if each.name != MACHINE or each.failed]
    (folder / "README.md").write_text(page(facts, shown))
    results = {"machine": facts, "parts": [asdict(each) for each in shown]}
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")


def look(running: Sequence[Running], turns_begin: float, due: float) -> bool:
    """End parts whose time is over, give the next turn if it is time; return whether one ended."""
    now, alive = time.monotonic(), [each for each in running if each.is_running]
    for each in alive:
        if each.has_ended():
            continue
        if each.turn_ends and now >= each.turn_ends:
            each.end(f"not done after a turn of {now - each.turn_began:.0f} seconds")
        elif not each.part.share and now >= turns_begin:
            each.end("not done when the turns began")
    left = [each for each in alive if each.is_running]
    preparing = [each.part.name for each in left if not each.is_ready()]
    waiting = [each for each in left if each.is_ready() and not each.turn_ends]
    has_turn = any(each.turn_ends for each in left)
    if waiting and not has_turn and (not preparing or now >= turns_begin):
        limit = (due - now) * waiting[0].part.share / sum(each.part.share for each in left)
        print(f"{waiting[0].part.name}: at most {limit:.0f} seconds", flush=True)
        waiting[0].begin_turn(limit, preparing)
    return len(left) < len(alive)


def measure(
    chosen: Sequence[Part], folder: Path, environment: Mapping[str, str] | None, seconds: float
) -> list[Outcome]:
    """Let all parts prepare together and measure one at a time, and end in time."""
    began = time.monotonic()
    due = began + seconds - RESERVE
    running = [Running(part, folder, environment) for part in chosen]
    try:
        while any(each.is_running for each in running) and time.monotonic() < due:
            if look(running, began + PREPARATION * seconds, due):
                write(folder, running)
            time.sleep(LOOK)
    finally:
        for each in running:
            if each.is_running:
                each.end("not done in its turn" if each.turn_ends else "not prepared in time")
        for each in running:
            each.wait(GRACE / len(running))
        write(folder, running)
    return [each.outcome for each in running]


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
    parser.add_argument("--minutes", type=float, default=10, help="for all parts (default: 10)")
    parser.add_argument("--no-install", action="store_true", help="install no peers")
    parser.add_argument("--wheels", type=Path, help="folder of wheels, used with --no-install")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try this program")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs/gpu")
    options = parser.parse_args()
    if options.wheels and not options.no_install:
        parser.error("--wheels needs --no-install")
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    chosen = parts(options.device, quick=options.quick)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**COMPILERS, **os.environ}
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
