"""What the studio measures: curves of a run, attention of a sentence, and times of nodes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import weft
from starlette.testclient import TestClient
from weft.extensions.editor.studio import measurements
from weft.extensions.editor.studio.files import opened
from weft.extensions.editor.studio.measurements import Attending
from weft.extensions.editor.studio.server import make_app
from weft.extensions.editor.studio.session import Session
from weft.graphs.draw.scene import scene
from weft.runtime.analysis import measure
from weft.runtime.analysis.profile_summary import Profile, Spent
from weft.runtime.checkpoint import manifest
from weft.specs.findings import InputError

PORT, TOKEN = 8998, "t" * 32
GOOD = {"authorization": f"Bearer {TOKEN}", "host": f"127.0.0.1:{PORT}"}
TINY = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 2, "vocab": 20}
SMALL = {"format": 1, "name": "small", "extends": "transformer-tiny", "params": TINY}


def client_of(name: str) -> TestClient:
    """Return a client of the studio of a file."""
    return TestClient(make_app(Session(opened(name)), TOKEN, PORT), headers=GOOD)


def write(folder: Path, *events: dict[str, Any]) -> Path:
    """Write a history."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(event) + "\n" for event in events)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def train(update: int, **values: Any) -> dict[str, Any]:
    """Return an event of training."""
    return {"type": "train", "update": update, **values}


def test_curves_are_the_numbers_of_the_events() -> None:
    """The later of two events counts; what is not finite or not a number is left out."""
    events = [
        train(20, loss=3.0, rate=0.2, seconds=9.0, note="x", good=True),
        train(10, loss=4.0, rate=0.1),
        train(20, loss=2.0, rate=0.2),
        train(30, loss=float("nan"), rate=0.3),
        {"type": "valid", "update": 20, "bleu": 12},
    ]
    assert measurements.series(events, "train") == {
        "loss": [[10, 20], [4.0, 2.0]],
        "rate": [[10, 20, 30], [0.1, 0.2, 0.3]],
    }
    assert measurements.series(events, "valid") == {"bleu": [[20], [12]]}


def test_long_curves_are_means_of_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven points in at most three: threes, and the rest."""
    monkeypatch.setattr(measurements, "MOST_POINTS", 3)
    events = [train(update, loss=float(update**2)) for update in range(1, 8)]
    [[updates, values]] = measurements.series(events, "train").values()
    assert updates == [2, 5, 7]
    assert values == pytest.approx([(1 + 4 + 9) / 3, (16 + 25 + 36) / 3, 49])


@pytest.mark.parametrize("name", ["best", "checkpoints/000020"])
def test_a_checkpoint_shows_what_its_run_did_afterwards(tmp_path: Path, name: str) -> None:
    """If the folder of the run has the same history, and more."""
    own, later = [train(10, loss=4.0), train(20, loss=3.0)], train(30, loss=2.0)
    folder = write(tmp_path / "run" / name, *own)
    write(tmp_path / "run", *own, later)
    (folder / "run.json").write_text('{"evaluate": {"best": {"type": "bleu"}}}')
    found = measurements.curves(folder)
    assert (found["update"], found["best"]) == (20, "bleu")
    assert found["train"]["loss"] == [[10, 20, 30], [4.0, 3.0, 2.0]]


def test_the_history_of_another_run_is_not_taken(tmp_path: Path) -> None:
    """A checkpoint may lie in any folder, and without a history it has no curves."""
    folder = write(tmp_path / "run" / "best", train(10, loss=4.0))
    write(tmp_path / "run", train(10, loss=5.0), train(20, loss=3.0))
    assert measurements.curves(folder)["train"]["loss"] == [[10], [4.0]]
    (folder / "metrics.jsonl").unlink()
    assert measurements.curves(folder) == {"update": 0, "train": {}, "valid": {}, "best": ""}


@pytest.mark.integration
def test_the_heads_are_those_of_weft_attend(toy_checkpoint: Path, tmp_path: Path) -> None:
    """Of the chosen layer, for the sentence and the translation by the model."""
    folder = shutil.copytree(toy_checkpoint, tmp_path / "checkpoint")
    model = weft.open(folder)
    [maps] = model.attention(["sun moon"])
    path = next(name for name in maps.weights if name.startswith("decoder.0.cross_attention"))
    client = client_of(str(folder))

    asked = {"sentence": " sun moon ", "node": "decoder.*.cross_attention"}
    found = client.post("/api/attention", json=asked).json()

    assert found["target"] == model.translate(["sun moon"])[0]
    assert found["layers"][found["shown"]]["path"] == path
    assert found["title"] == "target reads source"
    assert (tuple(found["reads"]), tuple(found["read"])) == (maps.target, maps.source)
    for head, weights in zip(found["heads"], maps.weights[path].tolist(), strict=True):
        for row, expected in zip(head, weights, strict=True):
            assert row == pytest.approx(expected, abs=5e-5)
    given = client.post("/api/attention", json={**asked, "target": "a"}).json()
    assert given["target"] == "a"
    assert len(given["reads"]) == 1 + len(model.line_predictor().target.encode("a"))


@pytest.mark.integration
def test_a_layer_is_chosen_by_its_path_or_by_its_node(toy_checkpoint: Path, tmp_path: Path) -> None:
    """A node has the layers of all copies; a template has those of all its nodes."""
    attending = Attending(shutil.copytree(toy_checkpoint, tmp_path / "checkpoint"))
    every = attending.look("sun", None, "", "")
    count = len(every["layers"])
    copies = weft.load(tmp_path / "checkpoint/spec.json").form.nodes["encoder"].repeat
    encoder = attending.look("sun", None, "encoder", "")
    assert len(encoder["layers"]) == copies
    assert {one["node"].partition("/")[0] for one in encoder["layers"]} == {
        "encoder.*.self_attention"
    }
    last = every["layers"][-1]["path"]
    assert attending.look("sun", None, "", last)["shown"] == count - 1
    assert attending.look("sun", None, "", "nothing")["shown"] == 0
    with pytest.raises(InputError, match="'head' does not attend"):
        attending.look("sun", None, "head", "")


@pytest.mark.integration
def test_without_a_sentence_the_first_of_the_validation_data_is_taken(
    toy_checkpoint: Path, tmp_path: Path
) -> None:
    """Empty lines are passed over; without the data, a sentence must be typed."""
    folder = shutil.copytree(toy_checkpoint, tmp_path / "checkpoint")
    run = json.loads((folder / "run.json").read_text())
    run["data"]["root"] = str(tmp_path / "data")
    (folder / "run.json").write_text(json.dumps(run))
    manifest.write(folder)
    with pytest.raises(InputError, match="validation data"):
        Attending(folder).look("", None, "", "")
    (tmp_path / "data").mkdir()
    for name in ("valid.src", "valid.tgt"):
        (tmp_path / "data" / name).write_text("\nmoon sun\n")
    assert Attending(folder).look("", "", "", "")["source"] == "moon sun"
    (folder / "run.json").write_text("{}")
    manifest.write(folder)
    with pytest.raises(InputError, match="names no data"):
        Attending(folder).look("", "", "", "")


def test_a_spec_has_no_curves_and_no_attention() -> None:
    """The message names a way to get them."""
    client = client_of("transformer-tiny")
    for name in ("curves", "attention"):
        answer = client.post(f"/api/{name}", json={})
        assert answer.status_code == 422
        assert "not a checkpoint" in answer.json()["error"]["problem"]


def test_the_time_of_a_node_is_that_of_all_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles have the time of the innermost node; drawings add it up."""
    spent = {"a.*.b": 1.0, "a.*.b/f": 2.0, "a.*.c": 4.0, "d": 8.0}
    profile = Profile(3, "cpu", 20.0, {k: Spent(forward=v) for k, v in spent.items()}, {}, 0, 0)
    monkeypatch.setattr(measure, "measure_forward", lambda *_, **__: profile)
    found = measurements.times(weft.load("transformer-tiny").graph(), {"T": 4})
    assert found == {
        "nodes": {"a": 7.0, "a.*": 7.0, "a.*.b": 3.0, "a.*.b/f": 2.0, "a.*.c": 4.0, "d": 8.0},
        "seconds": 20.0,
        "passes": 3,
        "device": "cpu",
    }


@pytest.mark.integration
def test_every_node_of_a_drawing_has_a_time(tmp_path: Path) -> None:
    """Nodes that compute something have more than none, and parts no more than the whole."""
    file = tmp_path / "small.json"
    file.write_text(json.dumps(SMALL))
    client = client_of(str(file))
    asked = {"text": file.read_text(), "sizes": {"B": 2, "S": 5, "T": 6}}
    found = client.post("/api/times", json=asked).json()
    drawn = scene(weft.load(file).graph())
    boxes = {box["fact"] for box in drawn["states"][""]["boxes"] if "fact" in box}
    assert boxes <= found["nodes"].keys() <= drawn["facts"].keys() | {"encoder.*", "decoder.*"}
    assert all(seconds > 0 for seconds in found["nodes"].values())
    assert found["nodes"]["encoder"] >= found["nodes"]["encoder.*.self_attention"]


@pytest.mark.integration
def test_a_forward_pass_is_measured_without_gradients() -> None:
    """No time of a backward pass, and no memory that one would need."""
    graph = weft.load("transformer-tiny", **TINY).graph()
    found = measure.measure_forward(graph, {"B": 1, "S": 3, "T": 3}, device="cpu")
    assert found.updates == measure.TIMES
    assert sum(spent.backward for spent in found.nodes.values()) == 0
    assert not any("backward" in path for path in found.stacks)


def test_sizes_beyond_a_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the formulas before anything runs, and by the clock between two modules."""
    client = client_of("transformer-base")
    text = client.get("/api/file").json()["text"]
    for sizes, problem in (
        ({"T": 100_000}, "GFLOP"),
        ({"B": 0}, "whole numbers"),
        ({"X": 2}, "no axis 'X'"),
    ):
        answer = client.post("/api/times", json={"text": text, "sizes": sizes})
        assert answer.status_code == 422
        assert problem in answer.json()["error"]["problem"]
    monkeypatch.setattr(measurements, "MOST_BYTES", 4 * 63_000_000)
    with pytest.raises(InputError, match=r"takes 0\.3 GB, and the studio measures up to 0\.3"):
        measurements.times(weft.load("transformer-base").graph(), {})
    graph = weft.load("transformer-tiny", **TINY).graph()
    with pytest.raises(InputError, match="longer than 0 seconds"):
        measure.measure_forward(graph, {"B": 1, "S": 2, "T": 2}, seconds=0.0, device="cpu")


def test_a_spec_with_errors_has_no_times_and_no_wires() -> None:
    """They need a graph."""
    client = client_of("transformer-tiny")
    for name in ("times", "ports"):
        answer = client.post(f"/api/{name}", json={"text": "{}", "path": "x"})
        assert answer.status_code == 422
        assert "errors" in answer.json()["error"]["problem"]
