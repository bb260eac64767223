"""A translator whose source has the axis `2*S`: trained, opened, and used on rows of any length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.runtime.train.plan import load_run, plan_run

from ...conftest import write_toy

pytestmark = pytest.mark.integration

WIDTH = 8
MODEL: dict[str, Any] = {
    "format": 1,
    "name": "halves",
    "params": {"vocab": 20},
    "axes": {"B": "batch", "S": "time", "T": "time"},
    "inputs": {
        "source": "ids:vocab[B 2*S]",
        "source_mask": "mask[B 2*S]",
        "target": "ids:vocab[B T]",
    },
    "outputs": {"logits": "head.y"},
    "nodes": {
        "words": {"use": "embedding@1", "in": {"ids": "source"}, "params": {"d_model": WIDTH}},
        "halved": {
            "use": "convolution@1",
            "in": {"x": "words.y", "mask": "source_mask"},
            "params": {"d_out": WIDTH, "kernel": 3, "stride": 2},
        },
        "written": {"use": "embedding@1", "in": {"ids": "target"}, "params": {"d_model": WIDTH}},
        "before": {
            "use": "attention@1",
            "in": {"x": "written.y"},
            "params": {"heads": 2, "causal": True},
        },
        "read": {
            "use": "attention@1",
            "in": {"x": "before.y", "memory": "halved.y", "mask": "halved.mask"},
            "params": {"heads": 2},
        },
        "head": {"use": "linear@1", "in": {"x": "read.y"}, "params": {"d_out": "=vocab"}},
    },
    "step": {"axis": "T"},
}


def run_in(folder: Path) -> Path:
    """Write a run with its model, objective and data; return the run."""
    objective = json.loads(Path(weft.load("translation").source).read_text())
    objective["inputs"]["source"] = "ids:source_vocab[B 2*S]"
    objective["params"]["model"] = {"spec": "halves"}
    (folder / "pairs.json").write_text(json.dumps(objective))
    (folder / "halves.json").write_text(json.dumps(MODEL))
    for name, lines in (("train", 20), ("valid", 4)):
        write_toy(folder, lines, len(name), name)
    text = {"type": "text", "tokenizer": "words"}
    run = {
        "format": 1,
        "name": "halves",
        "objective": "pairs.json",
        "data": {
            "root": str(folder),
            "columns": {"source": text, "target": text},
            **{
                name: {"lines": {"source": [f"{name}.src"], "target": [f"{name}.tgt"]}}
                for name in ("train", "valid")
            },
        },
        "tokenizers": {"words": {"type": "symbols"}},
        "predict": {"type": "beam", "beam": 2},
        "answers": "target",
        "batch": {"tokens": 60},
        "accumulate": 1,
        "updates": 2,
        "schedule": {"peak": 0.01},
        "evaluate": {"every": 1, "metrics": ["bleu"]},
        "checkpoint": {"every": 2},
        "trackers": [],
        "precision": "float32",
        "compile": "eager",
        "threads": 1,
    }
    (folder / "run.json").write_text(json.dumps(run))
    return folder / "run.json"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> weft.Model:
    """Return the trained model, opened from its checkpoint."""
    folder = tmp_path_factory.mktemp("halves")
    run = run_in(folder)
    assert plan_run(*load_run(run)).findings == []
    weft.train(run, out=folder / "out")
    return weft.open(folder / "out" / "checkpoints" / "000002")


def test_every_line_is_translated(model: weft.Model) -> None:
    """Sources have 2, 3 and 4 ids with the end token."""
    assert len(model.translate(["sun", "sun moon", "sun moon tree"])) == 3


def test_the_padding_of_a_source_is_masked(model: weft.Model) -> None:
    """A pair has the same score beside longer ones, whose sources pad its own further."""
    pairs = [("sun moon", "moon sun"), ("sun moon tree river stone", "stone")]

    together = [one.log_probability for one in model.score(pairs)]

    alone = [one.log_probability for pair in pairs for one in model.score([pair])]
    assert together == pytest.approx(alone, abs=1e-4)


def test_a_model_refuses_a_length_that_is_no_multiple(model: weft.Model) -> None:
    """The help tells the length to pad to."""
    inputs = weft.example_inputs(model.module, {"S": 3})
    assert model.module(**inputs)["logits"].size(1) == inputs["target"].size(1)
    inputs |= {name: inputs[name][:, :-1] for name in ("source", "source_mask")}

    with pytest.raises(
        weft.InputError, match=r"'source' has size 5 on an axis of size 2\*S"
    ) as error:
        model.module(**inputs)

    assert "pad it to 6" in str(error.value.help)


def test_an_objective_whose_axes_no_batch_fits_is_refused(tmp_path: Path) -> None:
    """The column of a source knows nothing of two axes."""
    run = run_in(tmp_path)
    objective = json.loads((tmp_path / "pairs.json").read_text())
    objective["inputs"]["source"] = "ids:source_vocab[B S+T]"
    objective["params"]["model"] = {"spec": "transformer-tiny"}
    (tmp_path / "pairs.json").write_text(json.dumps(objective))

    findings = plan_run(*load_run(run)).findings

    assert any("not of a form such as S, S+1 or 4*S" in one.problem for one in findings)
