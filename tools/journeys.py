"""Count the files that the journeys of docs/architecture.md enter and load.

Used as `python tools/journeys.py`; `--files` also lists the files of each journey, in the order
in which they are entered.  A file is entered when a function in it runs; it is loaded when Python
has imported it.  Of the update, only the files entered from its batch to the step of the optimizer
count; the training around it has a line of its own.  `__init__.py` files of packages, which hold
only a docstring, are not counted; the public API (the root `__init__.py`) is.  Trainings of a study
are processes of their own, whose files are those of a training.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import weft

ROOT = Path(weft.__file__).parent
OK = 200
SAVED = {"name": "variant", "complete": False, "write": True}
"""How the studio saves a text as a variant."""
WORDS = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf")
JOURNEYS = {
    "kernel": "from 'use: attention@1' to the attention kernel",
    "message": "from a wrong wire to its message",
    "update": "one update of a training",
    "translate": "'weft translate' of one sentence",
    "patch": "from a patch to the generated class",
    "studio": "from a click in the studio to the text",
    "study": "from a study to its report",
}
"""Function below to the heading of the journey in docs/architecture.md."""
TRAINING = "the complete training, of one update"
UPDATE = ("runtime/train/trainer.py", "Trainer._update")
"""File and name of the function that turns micro-batches into a step of the optimizer."""
SMALL: dict[str, Any] = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1}


def kernel(_: Path) -> None:
    """Build a Transformer and run its attention once."""
    import torch  # noqa: PLC0415 - a journey that needs no torch must not load it

    model = weft.build(weft.load("transformer-tiny", vocab=50, **SMALL))
    ids = torch.ones(1, 4, dtype=torch.long)
    model(source=ids, target=ids, source_mask=ids == 1)


def message(folder: Path) -> None:
    """Check a spec in which a wire leads to the wrong value."""
    from weft.runtime.cli.main import main  # noqa: PLC0415

    value = json.loads((ROOT / "specs/models/transformer-base.json").read_text(encoding="utf-8"))
    value["nodes"]["head"]["in"]["x"] = "target"
    path = folder / "wrong.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        code = main(["check", str(path)])
    if code != 1 or "/nodes/head/in/x" not in printed.getvalue():
        sys.exit(f"the wrong wire was not reported: {printed.getvalue()}")


def update(folder: Path) -> None:
    """Train a small model for one update."""
    weft.train("demo", out=folder / "run", overrides=overrides(folder))


def overrides(folder: Path) -> dict[str, object]:
    """Return settings that make the demo's run one update on a toy corpus."""
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for name, count in (("train", 200), ("valid", 4), ("test", 2)):
        for side in ("en", "de"):
            lines = (" ".join(WORDS[i % 7 : i % 7 + 2]) for i in range(count))
            (corpus / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
    return {
        "data.root": str(corpus),
        "tokenizers.tokenizer.vocab_size": 40,
        "updates": 1,
        "schedule": {"peak": 0.001},
        "threads": 1,
        "evaluate.every": 1,
        "checkpoint.every": 1,
        "checkpoint.average": 1,
        **{f"params.model.params.{name}": value for name, value in SMALL.items()},
    }


def translate(folder: Path) -> None:
    """Translate one sentence with the checkpoint of `update`."""
    from weft.runtime.cli.main import main  # noqa: PLC0415

    sys.stdin = io.TextIOWrapper(io.BytesIO(b"sun moon\n"))
    sys.exit(1) if main(["translate", str(folder / "run" / "averaged")]) else None


def patch(folder: Path) -> None:
    """Generate the class of a spec that extends another one."""
    shipped = json.loads((ROOT / "specs/models/transformer-tiny.json").read_text(encoding="utf-8"))
    child = {
        "format": shipped["format"],
        "extends": "transformer-tiny",
        "name": "child",
        "params": {"vocab": 50, "layers": 1},
        "patch": [{"select": "**[use=sublayer@1]", "set": {"params.order": "pre"}}],
    }
    path = folder / "child.json"
    path.write_text(json.dumps(child), encoding="utf-8")
    weft.build(weft.load(path))


def studio(folder: Path) -> None:
    """Insert a block in the studio, and save the result as a variant."""
    from starlette.testclient import TestClient  # noqa: PLC0415
    from weft.extensions.editor.studio.files import opened  # noqa: PLC0415
    from weft.extensions.editor.studio.server import (  # noqa: PLC0415
        make_app,
        tune_collector,
    )
    from weft.extensions.editor.studio.session import Session  # noqa: PLC0415

    tune_collector()
    port, token = 8080, "t" * 32
    path = folder / "mine.json"
    path.write_bytes((ROOT / "specs/models/transformer-tiny.json").read_bytes())
    headers = {"authorization": f"Bearer {token}", "host": f"127.0.0.1:{port}"}
    client = TestClient(make_app(Session(opened(str(path))), token, port), headers=headers)
    text = client.get("/api/start").json()["file"]["text"]
    wire = {"text": text, "path": "head", "port": "x"}
    client.post("/api/menu", json=wire)
    client.post("/api/ports", json=wire)
    inserted = {**wire, "what": "insert", "use": "layer_norm@1"}
    text = client.post("/api/edit", json=inserted).json()["text"]
    saved = client.post("/api/save_as", json={**SAVED, "text": text})
    if saved.status_code != OK or not (folder / "variant.json").is_file():
        sys.exit(f"the variant was not written: {saved.text}")


def study(folder: Path) -> None:
    """Plan, run and report a study of the demo's run with one row."""
    settings = {**overrides(folder)}
    root = settings.pop("data.root")
    value = {
        "format": 1,
        "name": "small",
        "run": "demo",
        "root": root,
        "set": settings,
        "rows": {"pre": {"params": {"d_ff": 48}}},
        "seeds": [1],
    }
    path = folder / "study.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    weft.Study(path, out=folder / "study").run()


def walked(
    journey: Callable[[Path], None], folder: Path, within: tuple[str, str] | None = None
) -> tuple[list[str], list[str], list[str]]:
    """Run a journey.

    Args:
        journey: the function to run.
        folder: its argument.
        within: file and qualified name of a function that the journey calls.

    Returns:
        The files that it enters, in order; those of them that it enters while `within` runs; and
        those that are loaded.
    """
    entered: dict[str, None] = {}
    inside: dict[str, None] = {}
    root = str(ROOT) + "/"
    importing = depth = 0

    def hook(frame: FrameType, event: str, _: object) -> None:
        nonlocal importing, depth
        code = frame.f_code
        file = code.co_filename.removeprefix(root)
        change = {"call": 1, "return": -1}.get(event, 0)
        if code.co_name == "<module>":  # what runs inside is the import, not the journey
            importing += change
        elif (file, code.co_qualname) == within:
            depth += change
        if event == "call" and not importing and code.co_filename.startswith(root):
            entered[file] = None
            if depth:
                inside[file] = None

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        journey(folder)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
    loaded = {file.removeprefix(root) for file in files if file.startswith(root)}
    ours = ("specs/", "graphs/", "blocks/", "runtime/", "extensions/", "__init__.py")
    counted = [f for f in sorted(loaded) if f.startswith(ours) and not f.endswith("/__init__.py")]
    return (
        [file for file in entered if file in counted],
        [file for file in inside if file in counted],
        counted,
    )


def record(name: str, folder: Path) -> dict[str, dict[str, list[str]]]:
    """Run a journey by name; return its files, and for `update` also those of the training."""
    entered, inside, loaded = walked(globals()[name], folder, UPDATE if name == "update" else None)
    if name != "update":
        return {name: {"entered": entered, "loaded": loaded}}
    if not inside:
        sys.exit(f"{UPDATE[1]} of {UPDATE[0]} did not run")
    return {
        "update": {"entered": inside, "loaded": loaded},
        "training": {"entered": entered, "loaded": loaded},
    }


def main() -> None:
    """Run each journey in a process of its own, and print the counts."""
    parser = argparse.ArgumentParser(description="Count the files of each journey.")
    parser.add_argument("--files", action="store_true", help="also list the files entered")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", choices=JOURNEYS, action="append", help="run only this journey")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        recorded = record(options.one, options.folder)
        (options.folder / f"{options.one}.json").write_text(json.dumps(recorded))
        return
    chosen = options.only or list(JOURNEYS)
    if "translate" in chosen and "update" not in chosen[: chosen.index("translate")]:
        parser.error("'translate' needs the checkpoint of 'update' before it")
    records: dict[str, dict[str, list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            command = [sys.executable, __file__, "--one", name, "--folder", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name}: {done.stderr}")
            records |= json.loads((Path(folder) / f"{name}.json").read_text())
    if options.json:
        print(json.dumps(records, indent=2))
        return
    print(f"{'journey':52} entered  loaded")
    for name, files in records.items():
        title = JOURNEYS.get(name, TRAINING)
        print(f"{title:52} {len(files['entered']):7} {len(files['loaded']):7}")
        if options.files:
            print("".join(f"    {file}\n" for file in files["entered"]), end="")


if __name__ == "__main__":
    main()
