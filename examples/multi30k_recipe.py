"""Train the translator of Multi30k with 2.6 million parameters that docs/results.md describes.

    python examples/multi30k_recipe.py DIR OUT --seed 1

DIR contains the corpus: train, val and test_2016_flickr, as NAME.en.gz and NAME.de.gz.  Two cores
work side by side:

1. Train two models that translate English into German, `multi30k-rotary`, and one that translates
   German into English; translate the German of the corpus with the last one.
2. Translate the English of the corpus with both forward models together, and of five answers keep
   the one that is most similar to the corpus.
3. Continue the training of the first model on the corpus and on both translations of it, with one
   process for each core: `multi30k-student`.

Sources: the ensemble as the teacher, Freitag et al. 2017, https://arxiv.org/abs/1702.01802; the
closest of several answers, Kim & Rush 2016, section 3.3, https://arxiv.org/abs/1606.07947; both
directions, Nguyen et al. 2020, https://arxiv.org/abs/1911.01986.

A call that was stopped continues where it was.  The output of a step is in OUT/STEP.log, and
`seconds.json` has the time of each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock

from weft.specs.files import write_beside

PARTS = ("train", "val", "test_2016_flickr")
"""Parts of the corpus."""
UPDATES = {"first": 9_000, "second": 4_000, "backward": 4_000, "student": 20_000}
"""Updates of each training."""
PROCESSES = "2"
"""Cores."""


@dataclass(frozen=True, slots=True)
class Step:
    """Arguments of Python, and the name of the log."""

    name: str
    words: list[str]
    threads: str = "1"


def settings(values: Mapping[str, object]) -> list[str]:
    """Return the options that set values.

    >>> settings({"seed": 1})
    ['--set', 'seed=1']
    """
    return [word for name, one in values.items() for word in ("--set", f"{name}={json.dumps(one)}")]


def training(out: Path, name: str, run: str, total: int, values: Mapping[str, object]) -> Step:
    """Return the step that trains a run, or continues if it has a checkpoint."""
    own = {
        "data.root": str(out / "data"),
        "updates": total,
        "schedule.pieces.0.over": min(400, total // 2),
        "threads": 1,
    }
    words = ["-m", "weft", "train", run, "--out", str(out / name), *settings({**own, **values})]
    if any((out / name / "checkpoints").glob("[0-9]*")):
        words.append("--resume")
    return Step(name, words)


def translation(out: Path, name: str, models: Sequence[str], *options: str) -> Step:
    """Return the step that translates the corpus with one model, or several together."""
    first, *others = (str(out / one / "averaged") for one in models)
    words = [
        "-m",
        "weft",
        "synthesize",
        "multi30k-rotary",
        first,
        "--out",
        str(out / "data" / name),
    ]
    words += [word for one in others for word in ("--ensemble", one)]
    words += settings({"data.root": str(out / "data")})
    return Step(f"translate-{name}", [*words, "--predict", "beam=5", *options])


def reversed_corpus() -> dict[str, object]:
    """Return the settings that exchange the languages."""

    def lines(part: str) -> dict[str, object]:
        return {"lines": {"source": [f"{part}.de.gz"], "target": [f"{part}.en.gz"]}}

    train, valid, test = (lines(part) for part in PARTS)
    return {"data.train": train, "data.valid": valid, "data.test": {PARTS[-1]: test}}


def stages(out: Path, updates: Mapping[str, int], seed: int) -> Iterator[list[list[Step]]]:
    """Yield what is done one after the other: chains of steps that run side by side."""
    first, second, backward = ({"seed": 10 * seed + one} for one in range(3))
    turned = reversed_corpus()
    yield [
        [training(out, "first", "multi30k-rotary", updates["first"], first)],
        [
            training(out, "second", "multi30k-rotary", updates["second"], second),
            training(
                out, "backward", "multi30k-rotary", updates["backward"], {**backward, **turned}
            ),
            translation(out, "backward", ["backward"], *settings(turned)),
        ],
    ]
    closest = ("--predict", "nbest=5", "--closest")
    english = translation(out, "forward", ["first", "second"], *closest)
    yield [[replace(english, threads=PROCESSES)]]
    own = {"seed": seed, "start": str(out / "first" / "averaged")}
    student = training(out, "student", "multi30k-student", updates["student"], own)
    shared = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", PROCESSES]
    yield [[replace(student, words=[*shared, *student.words])]]


class Log:
    """The seconds of the steps, in a file that a stopped call leaves complete."""

    def __init__(self, path: Path, given: Mapping[str, object]) -> None:
        """Read what earlier calls wrote.

        Raises:
            SystemExit: they were given something else.
        """
        self._path, self._lock, self._given = path, Lock(), given
        self.seconds: dict[str, float] = {}
        self.done: list[str] = []
        if path.is_file():
            known = json.loads(path.read_text(encoding="utf-8"))
            self.seconds, self.done = known["seconds"], known["done"]
            if (before := known.get("given", given)) != given:
                raise SystemExit(f"{path.parent} was begun with {before}: choose another folder")

    def add(self, name: str, seconds: float, *, done: bool) -> None:
        """Add the time of one try of a step."""
        with self._lock:
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self.done += [name] if done else []
            value = {"given": self._given, "seconds": self.seconds, "done": self.done}
            text = json.dumps(value, indent=1)
            write_beside(self._path, f"{text}\n".encode(), "file")


def work(chain: Sequence[Step], out: Path, log: Log) -> None:
    """Run steps one after the other.

    Raises:
        SystemExit: one failed.
    """
    for step in chain:
        if step.name in log.done:
            continue
        print(f"{time.strftime('%H:%M:%S')}  {step.name}: see {out / step.name}.log", flush=True)
        began, code = time.monotonic(), 1
        try:
            with (out / f"{step.name}.log").open("a", encoding="utf-8") as file:
                command = [sys.executable, *step.words]
                variables = {**os.environ, "OMP_NUM_THREADS": step.threads}
                code = subprocess.run(
                    command, stdout=file, stderr=file, env=variables, check=False
                ).returncode
        finally:
            log.add(step.name, time.monotonic() - began, done=code == 0)
        if code:
            raise SystemExit(f"{step.name} failed: see {out / step.name}.log; then call this again")


def main() -> None:
    """Copy the corpus, and run the steps that are not done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, metavar="DIR", help="folder of the corpus")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    parser.add_argument("--seed", type=int, default=1, help="seed of all models (default: 1)")
    parser.add_argument(
        "--fraction",
        type=float,
        default=1.0,
        metavar="F",
        help="train F of the updates, to try the steps (default: 1)",
    )
    given = parser.parse_args()
    names = [f"{part}.{language}.gz" for part in PARTS for language in ("en", "de")]
    missing = [name for name in names if not (given.corpus / name).is_file()]
    if missing:
        raise SystemExit(f"missing file: {given.corpus / missing[0]}")
    updates = {name: max(1, round(given.fraction * one)) for name, one in UPDATES.items()}
    digests = [sha256((given.corpus / name).read_bytes()).hexdigest()[:16] for name in names]
    settings_ = {"seed": given.seed, "updates": updates, "corpus": digests}
    log, wall = Log(given.out / "seconds.json", settings_), 0.0
    (given.out / "data").mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copyfile(given.corpus / name, given.out / "data" / name)
    for chains in stages(given.out, updates, given.seed):
        with ThreadPoolExecutor(len(chains)) as pool:
            list(pool.map(lambda chain: work(chain, given.out, log), chains))
        wall += max(sum(log.seconds[step.name] for step in chain) for chain in chains)
    print(f"trained in {wall / 60:.0f} minutes on two cores; now:")
    print(f"weft evaluate {given.out}/student/averaged --test test_2016_flickr --precision float32")


if __name__ == "__main__":
    main()
