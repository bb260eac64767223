"""Files of format 1: runs and checkpoints can be opened and migrated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from weft.graphs.ir.canonical import fingerprint
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main
from weft.runtime.model.opening import open_model
from weft.runtime.train.loading import load_run
from weft.runtime.train.objective.planned import graph_of_run
from weft.specs.findings import InputError
from weft.specs.reader import SHIPPED

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"
CHECKPOINT = GOLDEN / "checkpoint"
"""Written by the last version with format 1; its run sets `packed` and `recompute`."""
TRANSLATIONS = [
    line.split("\t")
    for line in (GOLDEN / "checkpoint-translations.tsv").read_text(encoding="utf-8").splitlines()
]
"""Source lines and the translations by that version."""
CHANGED = {
    "demo": ("evaluate",),
    "parsing-span-gum": ("params", "evaluate", "updates", "schedule", "checkpoint"),
}
"""Settings of shipped runs that were changed since."""


@pytest.mark.integration
@pytest.mark.parametrize("path", sorted((GOLDEN / "runs").glob("*.json")), ids=lambda p: p.stem)
def test_a_run_of_format_1_is_the_shipped_run(path: Path) -> None:
    """All settings that were not changed since and the objective are equal; docs were rewritten.

    An upgraded run sets params that equal the defaults of the objective.
    """
    (old, source), (new, shipped) = load_run(path), load_run(SHIPPED / "runs" / path.name)

    new = new.model_copy(update={name: getattr(old, name) for name in CHANGED.get(path.stem, ())})
    assert old.model_copy(update={"doc": new.doc, "params": new.params}) == new
    assert fingerprint(graph_of_run(old, source)) == fingerprint(graph_of_run(new, shipped))


def test_renamed_words_of_a_run_are_upgraded(tmp_path: Path) -> None:
    """`packed` and `recompute` have new names, also inside selections."""
    value = json.loads((GOLDEN / "runs" / "demo.json").read_text(encoding="utf-8"))
    value |= {"padding": "packed", "recompute": ["encoder.*", "**[use=keep_to_bias@1]"]}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(value))

    run, _ = load_run(path)

    assert run.padding == "unpadded"
    assert run.activation_checkpointing == ("model.encoder.*", "model.**[use=mask_to_bias@1]")


def test_a_checkpoint_of_format_1_translates_as_before() -> None:
    """The expected lines were written by the version that trained the checkpoint."""
    model = open_model(CHECKPOINT)
    sources, before = zip(*TRANSLATIONS, strict=True)

    assert model.translate(sources) == list(before)
    assert "source_mask" in model.checkpoint.graph.inputs
    assert model.checkpoint.run["padding"] == "unpadded"


def test_a_checkpoint_of_format_1_is_migrated_completely(tmp_path: Path) -> None:
    """Weights and optimizer state stay the same; the new folder needs no upgrade."""
    out = tmp_path / "new"

    assert main(["migrate", str(CHECKPOINT), "-o", str(out)]) == 0

    assert json.loads((out / "spec.json").read_text())["format"] == 2
    stored = json.loads((out / "run.json").read_text())
    assert (stored["format"], stored["activation_checkpointing"]) == (3, ["model.encoder.*"])
    old, new = open_checkpoint(CHECKPOINT), open_checkpoint(out)
    for before, after in ((old.weights, new.weights), (old.optimizer(), new.optimizer())):
        assert before.keys() == after.keys()
        assert all(torch.equal(before[path], after[path]) for path in before)
    assert old.tokenizers == new.tokenizers
    assert (out / "metrics.jsonl").read_bytes() == (CHECKPOINT / "metrics.jsonl").read_bytes()


@pytest.mark.integration
def test_the_objective_of_a_checkpoint_is_migrated(toy_checkpoint: Path, tmp_path: Path) -> None:
    """Without it, the run's columns fill no inputs, and losses cannot be computed."""
    old, new = toy_checkpoint, tmp_path / "new"

    assert main(["migrate", str(old), "-o", str(new)]) == 0

    assert json.loads((new / "objective.json").read_text()) == json.loads(
        (old / "objective.json").read_text()
    )
    assert open_model(new).translate(["sun moon"]) == open_model(old).translate(["sun moon"])


def test_a_changed_spec_of_format_1_is_still_refused(tmp_path: Path) -> None:
    """The upgrade does not bypass the fingerprint."""
    copy = tmp_path / "copy"
    shutil.copytree(CHECKPOINT, copy)
    text = (copy / "spec.json").read_text()
    (copy / "spec.json").write_text(text.replace('"order": "post"', '"order": "pre"', 1))

    with pytest.raises(InputError, match=r"spec\.json is not the spec"):
        open_checkpoint(copy)


def test_a_checkpoint_is_migrated_only_to_a_new_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without -o, or with an existing folder, nothing is written."""
    assert main(["migrate", str(CHECKPOINT)]) == 1
    assert "add -o" in capsys.readouterr().err
    assert main(["migrate", str(CHECKPOINT), "-o", str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_migrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The written file loads as the same run as the old one."""
    out = tmp_path / "new.json"

    assert main(["migrate", str(GOLDEN / "runs" / "demo.json"), "-o", str(out)]) == 0

    changes = capsys.readouterr().err
    assert "/format: 1 is now 2" in changes
    assert "/format: 2 is now 3" in changes
    assert load_run(out)[0] == load_run(GOLDEN / "runs" / "demo.json")[0]
