"""Time the studio: its first drawing in a browser, and its answers to keystrokes and clicks.

    python benchmarks/studio.py

Answers are timed in this process, as the CPU time that the server spends on one request and its
JSON, because other work on the machine is no fault of the studio's.  Each request has a text that
the server has not seen.  The first drawing is timed by the browser, from the start of the
navigation until the drawing is in the page and painted; this needs playwright and chromium.
"""

from __future__ import annotations

import json
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from check import written_out
from weft.extensions.editor.studio.files import opened
from weft.extensions.editor.studio.server import tune_collector
from weft.extensions.editor.studio.session import Session
from weft.specs.reader import SHIPPED

ROUNDS = 15
BASE = (SHIPPED / "models" / "transformer-base.json").read_text()
ATTENTION = "encoder.*.self_attention"
PAINTED = """() => new Promise(done => {
  const look = () => document.querySelector('svg .box')
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now())))
    : requestAnimationFrame(look);
  look();
})"""
"""Milliseconds from the start of the navigation until a frame with the drawing is painted."""


def session(folder: Path, text: str) -> Session:
    """Return a session with a file of this text."""
    file = folder / "mine.json"
    file.write_text(text)
    return Session(opened(str(file)))


def now() -> float:
    """Return the CPU seconds of this process and of the programs that it ran, such as dot."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def spent(ask: Callable[[int], Any]) -> list[float]:
    """Return the milliseconds of CPU time of each request, without the first two."""
    found = []
    for turn in range(ROUNDS + 2):
        start = now()
        json.dumps(ask(turn))
        found.append(1_000 * (now() - start))
    return found[2:]


def answers(folder: Path) -> dict[str, list[float]]:
    """Return the times of the answers of a server."""
    base = session(folder, BASE)
    texts = [
        BASE.replace('"d_ff": "=4*d_model"', f'"d_ff": {2_000 + turn}')
        for turn in range(ROUNDS + 2)
    ]
    renamed = [
        BASE.replace('"head"', f'"head_{turn}"').replace('"head.', f'"head_{turn}.')
        for turn in range(ROUNDS + 2)
    ]
    wrong = [text.replace("encoder.x", "encoder.z") for text in texts]
    chain = json.dumps(written_out(1_000), indent=1)
    many = [chain.replace('"d": 64', f'"d": {turn + 65}') for turn in range(ROUNDS + 2)]
    unwired = [chain.replace('"n499.y"', f'"z{turn}.y"') for turn in range(ROUNDS + 2)]
    broken = [chain.replace('"n500": {', f'"n500": {{"{turn}') for turn in range(ROUNDS + 2)]
    unlike = written_out(1_000)
    for index, node in enumerate(unlike["nodes"].values()):
        node["params"]["d_out"] = f"=d + {index}"
    varied = json.dumps(unlike, indent=1)
    one = [varied.replace('"=d + 500"', f'"=d + {turn}"') for turn in range(ROUNDS + 2)]
    every = [varied.replace('"d": 64', f'"d": {turn + 65}') for turn in range(ROUNDS + 2)]
    folded = [text.replace('"layers": 6', '"layers": 200') for text in texts]
    drawn = [text.replace('"layers": 6', '"layers": 2000') for text in texts]
    copies = "+encoder +decoder"
    return {
        "keystroke, transformer-base": spent(lambda turn: base.look({"text": texts[turn]})),
        "keystroke that changes a name in the drawing": spent(
            lambda turn: base.look({"text": renamed[turn]})
        ),
        "keystroke that breaks a wire": spent(lambda turn: base.look({"text": wrong[turn]})),
        "swap menu of attention, after a keystroke": spent(
            lambda turn: base.menu({"text": texts[turn] + "  ", "path": ATTENTION})
        ),
        "keystroke, 1,000 nodes written out": spent(lambda turn: base.look({"text": many[turn]})),
        "the same, which breaks a wire": spent(lambda turn: base.look({"text": unwired[turn]})),
        "the same, which breaks the text": spent(lambda turn: base.look({"text": broken[turn]})),
        "keystroke at one of 1,000 different nodes": spent(
            lambda turn: base.look({"text": one[turn]})
        ),
        "the same, at a param of all of them": spent(lambda turn: base.look({"text": every[turn]})),
        "1,000 blocks, folded": spent(lambda turn: base.look({"text": folded[turn]})),
        "10,000 boxes, every copy drawn": spent(
            lambda turn: base.look({"text": drawn[turn], "key": copies})
        ),
    }


def paints(folder: Path) -> list[float]:
    """Return the milliseconds until the first drawing, of new pages of one studio."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    command = [sys.executable, "-m", "weft", "studio", "transformer-base", "--no-browser"]
    pipe, found = subprocess.PIPE, []
    with subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as studio:
        address = next(line for line in studio.stdout or () if "http" in line).split()[-1]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for _ in range(ROUNDS + 2):
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                page.goto(address, wait_until="commit")
                found.append(float(page.evaluate(PAINTED)))
                page.close()
            browser.close()
        studio.terminate()
    return found[2:]


def main() -> None:
    """Time everything and print a table."""
    tune_collector()
    with tempfile.TemporaryDirectory() as name:
        rows = {f"{what}: CPU time": times for what, times in answers(Path(name)).items()}
        rows["first drawing of transformer-base: wall time"] = paints(Path(name))
    print(f"| what | milliseconds (median of {ROUNDS}) | range |\n|---|---|---|")
    for what, times in rows.items():
        print(f"| {what} | {statistics.median(times):.0f} | {min(times):.0f} to {max(times):.0f} |")
    print(f"\n{platform.platform()}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
