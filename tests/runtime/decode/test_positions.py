"""Models with a learned table of positions: long texts are cut or refused, never a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import weft
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.data.settings import FilterSettings
from weft.runtime.decode.inputs import positions_of
from weft.runtime.decode.predictors.text import row_of_line
from weft.runtime.decode.settings import GenerateSettings
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

from ..conftest import SMALL
from .continued import continued

pytestmark = pytest.mark.integration

MOST = 24
LONG = "sun moon tree river " * 10


@pytest.fixture(scope="module")
def checkpoint(
    toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a model with 24 positions on each side."""
    learned = {"use": "learned_position@1", "params": {"max_length": MOST}}
    run = toy_run_module(updates=2, params={**SMALL, "position": learned})
    data = run.data.model_copy(update={"filter": FilterSettings(max_length=MOST - 1)})
    run = run.model_copy(update={"data": data})
    result = api.train(run, out=tmp_path_factory.mktemp("learned") / "run")
    assert result.checkpoint is not None
    return result.checkpoint


@pytest.mark.parametrize("beam", [1, 3])
def test_a_long_source_is_cut_with_a_warning(beam: int, checkpoint: Path) -> None:
    """The output has at most as many tokens as there are positions."""
    model = weft.open(checkpoint, predict={"beam": beam, "max_extra": 500})
    warnings: list[str] = []

    [[found]] = model.line_predictor().stream(
        [row_of_line(LONG)], warn=lambda _, text: warnings.append(text)
    )

    assert warnings[0].endswith(f"truncated to {MOST - 1}")
    assert len(found.hypothesis.tokens) <= MOST


def test_a_long_pair_is_refused_by_everything_that_reads_it(checkpoint: Path) -> None:
    """Cutting its target would measure another pair."""
    model = weft.open(checkpoint)

    for use in (
        lambda: list(model.score([("sun", "moon"), ("sun", LONG)])),
        lambda: model.attention([LONG], ["sun"]),
        lambda: model.align(["sun"], [LONG]),
    ):
        with pytest.raises(InputError, match=f"the model has {MOST} positions"):
            use()


def test_the_commands_print_a_message(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and the exit code of a wrong input."""
    path = str(tmp_path / "long")
    Path(path).write_text(LONG + "\n")

    assert main(["translate", str(checkpoint), path, "-o", f"{path}.out"]) == 0
    for command in ("score", "evaluate"):
        assert main([command, str(checkpoint), "--source", path, "--target", path]) == 1
        assert f"the model has {MOST} positions" in capsys.readouterr().err


def test_predictions_warn_of_the_rows_that_are_cut(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines are numbered from the first of the file, whatever is read ahead."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"source": "{text}"}}\n' for text in ("sun", LONG, "sun", LONG)))

    assert main(["predict", str(checkpoint), str(rows), "-q", "--buffer", "3"]) == 0

    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [f"{rows}:{n}" for n in (2, 4)]
    assert all(line.endswith(f"truncated to {MOST - 1}") for line in lines)


def test_a_model_without_a_limit_has_none() -> None:
    """Sinusoids go on forever."""
    assert positions_of(weft.build(weft.load("transformer-tiny", vocab=20))) is None


def test_the_limit_of_an_ensemble_is_that_of_its_smallest_model(
    checkpoint: Path, toy_checkpoint: Path
) -> None:
    """The first model has sinusoids, and the second one 24 positions."""
    models = [weft.open(one).module for one in (toy_checkpoint, checkpoint)]

    assert positions_of(*models) == MOST


@pytest.mark.parametrize("beam", [1, 2])
def test_continuations_end_with_the_positions(beam: int) -> None:
    """Of a prompt of 3 of 8 positions, 6 tokens are written: the last one is not read."""
    sizes = {"d_model": 16, "heads": 2, "layers": 1, "max_length": 8}
    model = weft.build(weft.load("gpt2", vocab=20, **sizes), seed=1).eval()
    settings = GenerateSettings(max_new=50, beam=beam)
    [[found]] = continued(model, [[4, 5, 6]], settings)

    assert len(found.tokens) == 6
    logits = model(tokens=torch.tensor([[4, 5, 6, *found.tokens[:-1]]]))["logits"]
    assert beam > 1 or tuple(logits[0, 2:].argmax(-1).tolist()) == found.tokens
    both = continued(model, [[4, 5, 6], [7] * 8], settings)
    assert (both[0][0].tokens, len(both[1][0].tokens)) == (found.tokens, 1)
    with pytest.raises(InputError, match="9 tokens, but the model has 8 positions"):
        continued(model, [[7] * 9], settings)


def test_a_prefix_that_is_longer_than_the_positions_is_refused(checkpoint: Path) -> None:
    """It cannot be cut as a source can; the error names the line."""
    model = weft.open(checkpoint)
    needed = len(model.line_predictor().target.encode(LONG)) + 1

    with pytest.raises(InputError, match=f"{needed} tokens, end token included") as raised:
        model.translate(["sun", {"source": "moon", "prefix": LONG}])
    assert raised.value.location == "line 2"


def test_ids_that_are_longer_than_the_positions_are_refused(checkpoint: Path) -> None:
    """Ids are given by a program, so they are not cut; outputs end with the positions."""
    model = weft.open(checkpoint, predict={"max_extra": 500})

    [found] = model.decode([[5] * MOST])
    assert len(found[0].tokens) <= MOST
    with pytest.raises(InputError, match=f"the source has {MOST + 1} tokens") as raised:
        model.decode([[5], [5] * (MOST + 1)])
    assert raised.value.location == "source 2"
