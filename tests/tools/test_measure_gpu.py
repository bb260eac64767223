"""`make measure-gpu`: it ends in time, a failed part does not hide others, ratios are the rows'."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
FILE = FOLDER / "measure_gpu.py"
ROW = "open(sys.argv[2], 'a').write('{\"name\": 1}\\n')"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a benchmark."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.fixture
def gpu(module: Any) -> Any:
    """Return the module measure_gpu."""
    return module("measure_gpu")


START = "import os, subprocess, sys, time\nfrom pathlib import Path\nrows = Path(sys.argv[2])"
PREPARED = """
rows.with_suffix('.ready').touch()
while not (turn := rows.with_suffix('.turn')).exists():
    time.sleep(0.01)
"""
HANG = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(3600)
"""


def part(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, **changes: Any
) -> Any:
    """Return a part that runs Python as if it was a benchmark, with `--rows FILE` as arguments."""
    (tmp_path / "benchmarks").mkdir(exist_ok=True)
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    name = changes.get("name", "training base")
    file = tmp_path / "benchmarks" / f"{name.replace(' ', '-')}.py"
    file.write_text(f"{START}\n{code}\n")
    monkeypatch.setitem(gpu.TABLES, name, lambda rows: [f"a table of {len(rows)}"])
    return gpu.Part(name, [sys.executable, f"benchmarks/{file.name}"], changes.get("share", 0))


@pytest.mark.integration
def test_a_part_gives_its_rows_and_who_was_left_out(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rows of an earlier measurement in the same folder do not count."""
    code = f"{ROW}\nprint('left out: Marian: no module\\ndone')"
    for _ in range(2):
        [outcome] = gpu.measure([part(gpu, monkeypatch, tmp_path, code)], tmp_path, None, 60)

    assert (outcome.failed, outcome.rows, outcome.last) == ("", [{"name": 1}], "done")
    assert outcome.left_out == ["left out: Marian: no module"]
    assert (tmp_path / "training-base.log").read_text().endswith("done\n")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("code", "failed"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("print('no CUDA device: nothing was measured')", "it measured nothing"),
    ],
)
def test_a_part_that_measures_nothing_has_failed(
    code: str, failed: str, gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise the page would have an empty table."""
    [outcome] = gpu.measure([part(gpu, monkeypatch, tmp_path, code)], tmp_path, None, 60)

    assert outcome.failed == failed


@pytest.mark.integration
def test_turns_begin_after_the_preparation_of_all_in_their_order(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first part prepares longest; none measures before, and no two at the same time."""
    note = "open('order', 'a').write(rows.stem + ' {}\\n')"
    work = f"{note.format('begins')}\ntime.sleep(0.2)\n{ROW}\n{note.format('ends')}"
    slow = f"time.sleep(1)\n{note.format('prepared')}\n{PREPARED}\n{work}"
    parts = [
        part(gpu, monkeypatch, tmp_path, slow, name="training base", share=1),
        part(gpu, monkeypatch, tmp_path, f"{PREPARED}\n{work}", name="decoding", share=1),
    ]

    outcomes = gpu.measure(parts, tmp_path, None, 60)

    assert [outcome.failed for outcome in outcomes] == ["", ""]
    assert (tmp_path / "order").read_text().splitlines() == [
        "training-base prepared",
        *(
            f"{name} {event}"
            for name in ("training-base", "decoding")
            for event in ("begins", "ends")
        ),
    ]


def alive(process: int) -> bool:
    """Return whether a process runs; one that was killed may wait for its parent to notice."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.integration
def test_parts_that_hang_are_killed_and_their_rows_kept(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In 7 s, 1 of which is reserved: half for the preparation, the rest for turns.

    Tests hang, one part hangs in its preparation and one, with a child, in its turn; all ignore
    SIGTERM.  The last part still gets its turn, which says which part was still preparing.
    """
    sleeps = "[sys.executable, '-c', 'import time; time.sleep(3600)']"
    child = f"open('child', 'w').write(str(subprocess.Popen({sleeps}).pid))"
    turn = "open(rows, 'a').write('{\"disturbed_by\": [\"' + turn.read_text() + '\"]}\\n')"
    row = ROW.replace("name", "device").replace("1}", '\\"a GPU\\"}')
    parts = [
        part(gpu, monkeypatch, tmp_path, row, name="machine"),
        part(gpu, monkeypatch, tmp_path, f"{ROW}\n{HANG}", name="tests"),
        part(gpu, monkeypatch, tmp_path, HANG, name="training big", share=1),
        part(
            gpu,
            monkeypatch,
            tmp_path,
            f"{child}\n{PREPARED}\n{ROW}\n{HANG}",
            name="decoding",
            share=1,
        ),
        part(gpu, monkeypatch, tmp_path, f"{PREPARED}\n{turn}", name="attention", share=1),
    ]
    monkeypatch.setattr(gpu, "RESERVE", 1.0)
    looks, look = [], gpu.look
    monkeypatch.setattr(gpu, "look", lambda *args: looks.append(args) or look(*args))

    _, tests, preparing, hung, last = gpu.measure(parts, tmp_path, None, 7.0)

    assert len(looks) <= 6 / gpu.LOOK + 1  # each is followed by a pause of `LOOK` seconds
    assert not alive(int((tmp_path / "child").read_text()))
    assert tests.failed == "not done when the turns began"
    assert preparing.failed == "not prepared in time"
    assert hung.failed.startswith("not done after a turn of")
    assert tests.rows == hung.rows == [{"name": 1}]
    assert (last.failed, last.rows) == ("", [{"disturbed_by": ["training big"]}])
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("# Measured on a GPU\n")
    assert "Disturbed by what was still preparing: training big." in page
    assert page.count("a table of 1") == 3
    assert len(json.loads((tmp_path / "results.json").read_text())["parts"]) == 4


def test_every_part_that_measures_has_a_table_and_a_share(gpu: Any) -> None:
    """Tests run beside the preparation of the others, and have no rows."""
    chosen = gpu.parts("cuda")

    names = {each.name for each in chosen if each.share}
    assert names <= gpu.TABLES.keys()
    assert {each.name for each in chosen} - names == {"machine", "tests", "distributed"}


def test_the_page_compares_with_weft_of_the_same_precision(gpu: Any) -> None:
    """Medians of 2 s against 6 s and 4 s against 6 s: 3 and 1.5 times as fast."""
    seconds = {
        "weft float32": [1, 2, 9],
        "weft bfloat16": [4],
        "Hugging Face float32": [6, 6],
        "Hugging Face bfloat16": [6],
    }
    rows = [{"name": name, "beam": 4, "seconds": each} for name, each in seconds.items()]
    parts = [
        gpu.Outcome("tests", failed="exit code 1", last="1 failed"),
        gpu.Outcome("decoding", rows=rows, seconds=7.0),
    ]

    page = gpu.page({"device": "a GPU", "driver": "1.2"}, parts)

    assert page.startswith("# Measured on a GPU\n")
    assert "| driver | 1.2 |" in page
    assert "Failed: exit code 1.\n\n```text\n1 failed\n```" in page
    assert "| Hugging Face float32 | 4 | 6.000 | 6.000 to 6.000 | 3.00 |" in page
    assert "| Hugging Face bfloat16 | 4 | 6.000 | 6.000 to 6.000 | 1.50 |" in page


def test_the_page_separates_the_first_use_of_a_shape_from_later_ones(gpu: Any) -> None:
    """A kernel that plans for every shape is fast in a benchmark of one shape only."""
    row = {"kernel": "cuDNN", "case": "causal"}
    row |= {"first": [0.5, 1.0, 0.75], "later": [0.002, 0.004, 0.003], "fixed": [0.001, 0.003]}

    page = gpu.page({"device": "a GPU"}, [gpu.Outcome("attention", rows=[row])])

    assert "| cuDNN | causal | 750.00 | 1000.00 | 3.00 | 2.00 |" in page


def test_the_last_row_about_a_thing_counts_and_a_half_written_one_does_not(
    module: Any, tmp_path: Path
) -> None:
    """Rows are written after every round, and a part may be killed while it writes."""
    results = module("results")
    path = tmp_path / "rows.jsonl"
    for row in (
        {"name": "weft", "beam": 1},
        {"name": "weft", "beam": 4},
        {"name": "weft", "beam": 1},
    ):
        results.write_row(path, {**row, "seconds": len(results.read_rows(path))})
    with path.open("a") as file:
        file.write('{"name": "Mar')

    rows = [(row["name"], row["beam"], row["seconds"]) for row in results.read_rows(path)]
    assert rows == [("weft", 1, 2), ("weft", 4, 1)]
    assert results.read_rows(tmp_path / "missing") == []


@pytest.mark.integration
def test_a_checkout_is_imported_without_being_installed(module: Any, tmp_path: Path) -> None:
    """With its entry points, and a module of a wheel, in a process that sees no other packages."""
    wheel = tmp_path / "extra-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("extra.py", "ANSWER = 42\n")
    site = module("checkout").make_site(tmp_path / "site", [wheel])
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import extra, weft\n"
        "from importlib.metadata import entry_points, distribution\n"
        "print(extra.ANSWER, weft.__file__, distribution('weft').version)\n"
        "print(*sorted(point.name for point in entry_points(group='weft.exporters')))"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )

    first, second = done.stdout.splitlines()
    assert first == f"42 {site / 'weft/__init__.py'} 0.1.0"
    assert set(second.split()) >= {"ctranslate2", "huggingface", "onnx", "peft"}


@pytest.mark.slow
def test_every_part_runs_on_a_cpu(tmp_path: Path) -> None:
    """With tiny sizes: the first user with a GPU must not be the first to run them."""
    options = ["--device", "cpu", "--quick", "--no-install", "--minutes", "30"]
    done = subprocess.run(
        [sys.executable, str(FILE), *options, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "README.md").read_text()
    assert "| torch.nn.Transformer |" in page
    assert "| weft float32 | 1 |" in page
    assert "| trial-gpt2, float32 | 128 | weft |" in page
    assert "| 1 | eager |" in page
    assert "| weft fused | padded |" in page
    assert "| flash | causal |" in page
    assert "left out: cuDNN, padded: RuntimeError" in page
    parts = json.loads((tmp_path / "results.json").read_text())["parts"]
    assert [part["name"] for part in parts] == [
        "training base",
        "decoding",
        "training GPT-2",
        "decoding GPT-2",
        "attention",
        "first update",
    ]
