"""The recipe for Multi30k: its steps fit together, and a stopped call continues."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from weft.examples import multi30k_recipe as recipe
from weft.runtime.cli.common.parameters import overridden
from weft.runtime.data.readers.reader_settings import LinesSettings
from weft.runtime.train.plan import load_run
from weft.runtime.train.run import Run


def run_of(step: recipe.Step) -> Run:
    """Return the run of a step with its settings."""
    words = step.words
    given = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    name = next(word for word in words if word.startswith("multi30k-"))
    return load_run(name, overridden(given))[0]


def lines_of(run: Run) -> list[dict[str, tuple[str, ...]]]:
    """Return the files of each part of a run's data, by column."""
    parts = (run.data.train, run.data.valid, *run.data.test.values())
    return [part.settings.groups for part in parts if isinstance(part.settings, LinesSettings)]


def test_each_step_reads_what_an_earlier_one_writes(tmp_path: Path) -> None:
    """Teachers, distilled lines, the tokenizer, and the weights to start from."""
    corpus = {f"{part}.{one}.gz" for part in recipe.PARTS for one in ("en", "de")}
    made: set[str] = set()
    for chains in recipe.stages(tmp_path, recipe.UPDATES, seed=3):
        before = set(made)
        for chain in chains:
            own = set(before)
            for step in chain:
                run = run_of(step)
                assert run.data.root == str(tmp_path / "data")
                words = [run.start.checkpoint if run.start else "", *step.words]
                read = {Path(word).parent.name for word in words if word.endswith("averaged")}
                read |= {
                    name.split("/")[0]
                    for lines in lines_of(run)
                    for names in lines.values()
                    for name in names
                    if name not in corpus
                }
                assert read <= own
                out = Path(step.words[step.words.index("--out") + 1])
                own.add(out.name)
                made.add(out.name)
    assert made == {"first", "second", "backward", "forward", "student"}


def test_the_models_have_different_seeds_in_all_repetitions(tmp_path: Path) -> None:
    """The repetitions share no teacher."""
    seeds = [
        run_of(step).seed
        for seed in (1, 2, 3)
        for chains in recipe.stages(tmp_path, recipe.UPDATES, seed)
        for chain in chains
        for step in chain
        if "train" in step.words and step.name != "student"
    ]

    assert len(set(seeds)) == len(seeds) == 9


def test_the_backward_model_reads_german(tmp_path: Path) -> None:
    """All of its parts are exchanged, and nothing of the others is."""
    steps = [
        step
        for chains in recipe.stages(tmp_path, recipe.UPDATES, 1)
        for chain in chains
        for step in chain
    ]

    for step in steps:
        language = "de" if "backward" in step.name else "en"
        parts = lines_of(run_of(step))
        assert len(parts) == 3
        assert all(lines["source"][0].endswith(f".{language}.gz") for lines in parts)
        assert not any(lines["target"][0].endswith(f".{language}.gz") for lines in parts)


@pytest.mark.integration
def test_a_failed_step_is_repeated_and_a_finished_one_is_not(tmp_path: Path) -> None:
    """Their seconds add up over the calls."""
    count = f"open({str(tmp_path / 'calls')!r}, 'a').write('x')"
    wanted = f"import os, sys; sys.exit(not os.path.exists({str(tmp_path / 'wanted')!r}))"
    chain = [recipe.Step("one", ["-c", count]), recipe.Step("two", ["-c", wanted])]

    with pytest.raises(SystemExit, match=r"two failed: see .*two\.log"):
        recipe.work(chain, tmp_path, recipe.Log(tmp_path / "seconds.json", {"seed": 1}))
    first = json.loads((tmp_path / "seconds.json").read_text())
    (tmp_path / "wanted").touch()
    recipe.work(chain, tmp_path, recipe.Log(tmp_path / "seconds.json", {"seed": 1}))

    last = json.loads((tmp_path / "seconds.json").read_text())
    assert first["done"] == ["one"]
    assert last["done"] == ["one", "two"]
    assert (tmp_path / "calls").read_text() == "x"
    assert last["seconds"]["one"] == first["seconds"]["one"]
    assert last["seconds"]["two"] > first["seconds"]["two"] > 0
    with pytest.raises(SystemExit, match=r"was begun with \{'seed': 1\}: choose another"):
        recipe.Log(tmp_path / "seconds.json", {"seed": 2})


def test_a_checkpoint_that_was_not_completed_is_not_continued(tmp_path: Path) -> None:
    """A process was killed while it wrote the first one."""
    checkpoints = tmp_path / "one/checkpoints"
    (checkpoints / ".000150.partial").mkdir(parents=True)

    assert "--resume" not in recipe.training(tmp_path, "one", "multi30k-rotary", 9, {}).words
    (checkpoints / "000150").mkdir()
    assert "--resume" in recipe.training(tmp_path, "one", "multi30k-rotary", 9, {}).words


def test_a_missing_corpus_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written."""
    monkeypatch.setattr(sys, "argv", ["recipe", str(tmp_path), str(tmp_path / "out")])

    with pytest.raises(SystemExit, match=r"train\.en\.gz"):
        recipe.main()
    assert not (tmp_path / "out").exists()
