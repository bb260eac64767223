"""Sources of data, means of checkpoints, and blocks of the caller."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.runtime.api import Silent
from weft.runtime.checkpoint.average import average_weights
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

Maker = Callable[..., Run]
EVALUATION = {"every": 2, "best": "nll", "metrics": ["perplexity", "bleu"], "samples": 0}


def lines(name: str) -> dict[str, Any]:
    """Return a source of the toy data."""
    return {"lines": {"source": [f"{name}.src"], "target": [f"{name}.tgt"]}}


def changed(run: Run, **data: Any) -> dict[str, Any]:
    """Return the data of a run with some keys changed."""
    written: dict[str, Any] = run.data.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {**written, **data}


def validations(folder: Path) -> list[dict[str, Any]]:
    """Return the validations of a run."""
    events = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [event for event in events if event["type"] == "valid"]


@pytest.mark.slow
def test_each_source_is_measured_as_if_it_were_alone(toy_run: Maker, tmp_path: Path) -> None:
    """The source named by `best_on` selects the checkpoint; the state has all values."""
    sources = {"train": lines("train"), "test": lines("test")}
    settings = {"updates": 4, "evaluate": EVALUATION}
    evaluate = {**EVALUATION, "best_on": "test"}
    valid = changed(toy_run(), valid={"sources": sources})

    both = weft.train(toy_run(data=valid, updates=4, evaluate=evaluate), out=tmp_path / "both")

    values = validations(tmp_path / "both")
    for name, source in sources.items():
        data = changed(toy_run(), valid=source)
        weft.train(toy_run(data=data, **settings), out=tmp_path / name)
        for alone, beside in zip(validations(tmp_path / name), values, strict=True):
            for key in ("loss", "nll", "perplexity", "bleu"):
                assert beside[f"{name}/{key}"] == pytest.approx(alone[key], rel=1e-6)
    for event in values:
        assert event["test/nll"] != event["train/nll"]
        low, high = sorted((event["test/nll"], event["train/nll"]))
        assert low < event["nll"] < high
    best = min(values, key=lambda event: event["test/nll"])
    assert both.state.best == -best["test/nll"]
    assert both.checkpoint is not None
    state = json.loads((both.checkpoint / "state.json").read_text())
    assert state["valid"]["test/bleu"] == values[-1]["test/bleu"]


@pytest.mark.slow
def test_a_run_with_stages_resumes_bit_for_bit(toy_run: Maker, tmp_path: Path) -> None:
    """Killed within a stage, and at the end of one."""
    data = changed(
        toy_run(),
        train={"sources": {"real": lines("train"), "small": lines("valid")}},
        mixture=[
            {"until": 4, "weights": {"real": 0.3}},
            {"until": 6, "temperature": 5},
            {"weights": {"real": 0}},
        ],
    )
    settings = {"data": data, "batch": {"tokens": 60, "pool": 1, "count": "real"}, "accumulate": 2}

    weft.train(toy_run(updates=8, **settings), out=tmp_path / "whole")
    for stop in (3, 4, 6):
        overrides = {"updates": stop}
        out = tmp_path / str(stop)
        run = toy_run(updates=8, **settings)
        weft.train(run.model_copy(update=overrides), out=out, overrides=overrides)
        weft.train(run, out=out, resume=True)
        weights = [
            open_checkpoint(folder / "checkpoints" / "000008").weights
            for folder in (tmp_path / "whole", out)
        ]
        assert all(torch.equal(tensor, weights[1][path]) for path, tensor in weights[0].items())


@pytest.mark.integration
@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"accumulate": 1}, 1),
        ({"accumulate": 6}, 0),
        ({"accumulate": 1, "batch": {"tokens": 40, "pool": 1, "count": "real"}}, 0),
    ],
)
def test_training_tells_how_lengths_mix_in_an_update(
    toy_run: Maker, tmp_path: Path, settings: dict[str, Any], warned: int
) -> None:
    """By the lengths themselves: an epoch is too short for the estimate of a check."""
    messages: list[str] = []

    class Listener(Silent):
        def log(self, text: str) -> None:
            messages.append(text)

    run = toy_run(updates=1, **{"batch": {"tokens": 40}, **settings})
    weft.train(run, out=tmp_path / "run", listener=Listener())

    assert sum(text.startswith("an update: ") for text in messages) == 1
    assert sum("an update holds texts of one length" in text for text in messages) == warned


def test_the_mean_of_each_weight() -> None:
    """Compare with means computed by hand."""
    weights = [{"w": torch.tensor([x, 2.0 * x]), "b": torch.tensor(-x)} for x in (1.0, 2.0, 6.0)]

    mean = average_weights(weights)

    assert torch.equal(mean["w"], torch.tensor([3.0, 6.0]))
    assert torch.equal(mean["b"], torch.tensor(-3.0))


def test_bfloat16_weights_are_not_added_in_bfloat16() -> None:
    """Adding 1 + 2^-7 three times and 1 once in low precision would lose the small parts."""
    low, high = torch.tensor([1.0]).bfloat16(), torch.tensor([1.0 + 2**-7]).bfloat16()

    mean = average_weights([{"w": high}] * 3 + [{"w": low}])

    assert mean["w"].dtype == torch.bfloat16
    assert torch.equal(mean["w"], high)


def test_the_mean_is_rounded_once() -> None:
    """Summing in float32 would lose the small weights next to the large ones."""
    weights = [{"w": torch.tensor([x])} for x in (2.0**25, 1.0, 1.0, -(2.0**25))]

    assert torch.equal(average_weights(weights)["w"], torch.tensor([0.5]))


def test_counters_come_from_the_newest_checkpoint() -> None:
    """The mean of integers is not an integer, so the last checkpoint's value is used."""
    weights = [{"n": torch.tensor(3)}, {"n": torch.tensor(8)}]

    assert average_weights(weights)["n"].item() == 8


def test_the_inputs_are_not_changed() -> None:
    """The mean shares no memory with the inputs, also in float64, where no conversion is needed."""
    for dtype in (torch.float32, torch.float64):
        old, new = {"w": torch.ones(2, dtype=dtype)}, {"w": torch.zeros(2, dtype=dtype)}

        average_weights([old, new])["w"].fill_(5.0)
        average_weights([old])["w"].fill_(5.0)

        assert torch.equal(old["w"], torch.ones(2, dtype=dtype))
        assert torch.equal(new["w"], torch.zeros(2, dtype=dtype))


def test_a_missing_weight_is_named() -> None:
    """Checkpoints of two models are an error, whichever has more weights."""
    small, large = {"a": torch.ones(1)}, {"a": torch.ones(1), "b.c": torch.ones(1)}

    with pytest.raises(InputError, match=r"'b\.c' is in checkpoint 2 but not in checkpoint 1"):
        average_weights([small, large])
    with pytest.raises(InputError, match=r"'b\.c' is in checkpoint 1 but not in checkpoint 3"):
        average_weights([large, large, small])


@pytest.mark.parametrize("other", [torch.ones(3, 2), torch.ones(2, 3).half()])
def test_a_weight_of_another_shape_or_kind_is_named(other: torch.Tensor) -> None:
    """Different shapes are an error; broadcasting would average them silently."""
    with pytest.raises(InputError, match=r"'w' is float32\[2, 3\] in checkpoint 1 but float"):
        average_weights([{"w": torch.ones(2, 3)}, {"w": other}])


def test_no_checkpoints_have_no_mean() -> None:
    """An empty list is an error, not a division by zero."""
    with pytest.raises(InputError, match="no weights"):
        average_weights([])


class Mixed(nn.Module):
    """W x, with a square matrix W."""

    def __init__(self, d_model: int) -> None:
        """Allocate the matrix."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, d_model))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the matrix."""
        nn.init.normal_(self.weight, std=0.1, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return the product."""
        return x @ self.weight.T


MIXED = weft.BlockType(
    name="mixed",
    doc="A square linear map; y = W x.",
    source="this test",
    signature=lambda _, __: weft.Signature(
        inputs=(weft.port("x", "f[... d_model]"),), outputs=(weft.port("y", "f[... d_model]"),)
    ),
    weights=lambda arguments: {"weight": (arguments["d_model"], arguments["d_model"])},
    module=Mixed,
)


@pytest.mark.slow
def test_a_run_uses_a_block_of_the_caller(toy_run: Callable[..., Run], tmp_path: Path) -> None:
    """Its checkpoints can be resumed and opened with the block, and not without."""
    base = weft.load("transformer-tiny", blocks=[MIXED])
    spec = base.swap("encoder.*.feed_forward/f", "mixed@1").written
    (tmp_path / "mixed.json").write_text(json.dumps({**spec, "name": "mixed-tiny"}))
    settings = toy_run(spec="mixed.json", updates=4).model_dump(mode="json")
    run = tmp_path / "run.json"
    run.write_text(json.dumps(settings))
    out = tmp_path / "out"

    with pytest.raises(weft.SpecError, match="unknown block 'mixed@1'"):
        weft.train(run, out=out)
    weft.train(run, out=out, blocks=[MIXED])
    result = weft.train(run, out=out, overrides={"updates": 6}, resume=True, blocks=[MIXED])

    assert result.state.update == 6
    assert result.averaged is not None
    [line] = weft.open(result.averaged, blocks=[MIXED]).translate(["sun moon"])
    assert isinstance(line, str)
    with pytest.raises(weft.SpecError, match="blocks="):
        weft.open(result.averaged)
