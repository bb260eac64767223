"""Values that change over the updates of a run and fill inputs of its objective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.checkpoint.curve import Piece, values_at
from weft.runtime.train.history import read
from weft.specs.findings import SpecError

from .conftest import INPUTS, SECOND, Writer, equal, pairs_objective, weights
from .test_training import resumed

WEIGHTED = {
    **SECOND,
    "weighted": {
        "use": "elementwise@1",
        "in": {"rate": "rate", "loss": "divergence.loss"},
        "params": {"y": "rate * loss", "kind": "loss"},
    },
}
OUTPUTS = {"first": "cross_entropy.loss", "again": "cross_entropy_again.loss"}
ANNEALED = pairs_objective(
    WEIGHTED,
    {**OUTPUTS, "divergence": "weighted.y", "nll": "cross_entropy.nll"},
    inputs={**INPUTS, "rate": "f[]"},
)
"""R-Drop whose weight of the divergence is a value of the run."""
FIXED = pairs_objective(
    SECOND,
    {**OUTPUTS, "divergence": "divergence.loss", "nll": "cross_entropy.nll"},
    losses={"divergence": 0.25},
)
"""R-Drop with a fixed weight."""


def losses(folder: Path) -> list[float]:
    """Return the loss at each logged update of a run."""
    return [event["loss"] for event in read(folder) if "nll" in event]


def test_a_value_is_linear_between_two_updates() -> None:
    """By hand: constant, a quarter, half, and constant."""
    written = ({"from": 1.0, "over": 10}, {"to": 3.0, "over": 4})
    ramp = tuple(Piece.model_validate(piece) for piece in written)
    updates = (1, 10, 11, 12, 14, 99, None)

    values = [values_at({"rate": ramp, "fixed": 2.5}, n, 100) for n in updates]

    assert [value["rate"] for value in values] == [1.0, 1.0, 1.5, 2.0, 3.0, 3.0, 3.0]
    assert {value["fixed"] for value in values} == {2.5}


@pytest.mark.integration
def test_a_constant_value_is_the_weight_of_a_loss(objective_run: Writer, tmp_path: Path) -> None:
    """The loss times 0.25 trains as the loss with the weight 0.25, item by item."""
    api.train(objective_run(FIXED), out=tmp_path / "fixed")
    result = api.train(objective_run(ANNEALED, values={"rate": 0.25}), out=tmp_path / "valued")

    assert result.finished
    assert len(losses(tmp_path / "fixed")) > 1
    assert losses(tmp_path / "valued") == pytest.approx(losses(tmp_path / "fixed"), rel=1e-6)


@pytest.mark.integration
def test_a_changing_value_resumes_with_the_same_bits(objective_run: Writer, tmp_path: Path) -> None:
    """It is a function of the update; and it changes the training."""
    changing = {"rate": [{"to": 2}]}
    straight, again = resumed(objective_run(ANNEALED, values=changing), tmp_path)
    api.train(objective_run(ANNEALED, values={"rate": 0}), out=tmp_path / "without")

    assert equal(weights(straight.checkpoint), weights(again.checkpoint))  # type: ignore[arg-type]
    assert losses(tmp_path / "straight") != losses(tmp_path / "without")


@pytest.mark.parametrize(
    ("values", "at", "problem"),
    [
        ({}, "/inputs/rate", "no column fills the input 'rate'"),
        ({"rate": 1, "rat": 2}, "/values/rat", "has no input 'rat'"),
        ({"rate": [{"from": 1, "to": 1}]}, "/values/rate/0/to", "1 in the whole piece"),
        ({"rate": [{"over": 50}, {"to": 2}]}, "/values/rate/1", "begins after update 50"),
        ({"rate": {"from": 1, "to": 2}}, "/values/rate", "must be a number"),
        ({"rate": 1, "source": 2}, "/values/source", "'source' is a column"),
        ({"rate": "0.5"}, "/values/rate", ""),
    ],
)
def test_wrong_values_are_refused_before_training(
    objective_run: Writer, tmp_path: Path, values: dict[str, Any], at: str, problem: str
) -> None:
    """With the place, and before anything is written."""
    file = objective_run(ANNEALED, values=values)

    with pytest.raises(SpecError) as error:
        api.train(file, out=tmp_path / "run")

    assert any(at in finding.at and problem in finding.problem for finding in error.value.findings)
    assert not (tmp_path / "run").exists()
