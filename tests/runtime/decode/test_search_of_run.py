"""The search settings with which a stored run's model is opened."""

from __future__ import annotations

from typing import Any

import pytest
from weft.runtime.decode.predictors.registry import PREDICTORS
from weft.runtime.decode.settings import SampleSettings, SearchSettings, search_settings
from weft.runtime.model.answering import searching_of

DRAWS = SampleSettings(temperature=0.5, seed=7)


@pytest.mark.parametrize(
    ("predict", "expected"),
    [
        ({"type": "beam", "beam": 3, "alpha": 0.2}, {"beam": 3, "alpha": 0.2}),
        ({"type": "beam"}, {}),
        ({"type": "tree_beam", "max_extra": 90}, {"max_extra": 90}),
        ({"type": "greedy", "min_length": 2}, {"beam": 1, "min_length": 2}),
        (
            {"type": "sample", "samples": 3, "temperature": 0.5, "seed": 7},
            {"beam": 3, "sample": DRAWS},
        ),
        (
            {"type": "mask_predict", "iterations": 4, "lengths": 2, "max_length": 9},
            {"iterations": 4, "lengths": 2, "max_length": 9},
        ),
        ({"type": "cky"}, {}),
        ({"type": "argmax"}, {}),
    ],
)
def test_a_model_searches_as_its_run_says(
    predict: dict[str, Any], expected: dict[str, Any]
) -> None:
    """As the run file writes them, and as a checkpoint stores them, with every default."""
    for written in (predict, PREDICTORS.parse(predict, "predict").model_dump(mode="json")):
        assert search_settings(searching_of({"predict": written})) == SearchSettings(**expected)


@pytest.mark.parametrize("run", [{}, {"predict": None}, {"predict": {"type": "of a plugin"}}])
def test_a_run_without_a_known_predictor_has_the_defaults(run: dict[str, Any]) -> None:
    """Such a model can still be opened."""
    assert search_settings(searching_of(run)) == SearchSettings()
