"""Predictor registry: every predictor that a run may use.

To register a predictor, add a line here.  Installed packages add predictors through the
entry-point group `weft.predictors`; a run can never name code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...system.plugins import Plugins
from .predictor import PredictorSettings

SHIPPED = {
    "beam": ".search:Beam",
    "greedy": ".search:Greedy",
    "sample": ".search:Sample",
    "mask_predict": ".search:MaskPredict",
    "generate": ".search:Generate",
    "argmax": ".classify:Argmax",
    "tags": ".classify:Tags",
    "regression": ".classify:Regression",
    "ctc": ".ctc:Ctc",
}
"""Name of a shipped predictor to `file:Class`, relative to this folder."""

PREDICTORS: Plugins[PredictorSettings] = Plugins(
    "predictor",
    "weft.predictors",
    PredictorSettings,  # type: ignore[type-abstract]  # plug-ins are subclasses of it
    SHIPPED,
    __package__,
)
"""All predictors; `PREDICTORS.parse({"type": "beam"}, place)` returns the settings of one."""


def changed_predictor(
    own: PredictorSettings, changes: Mapping[str, Any], place: str
) -> PredictorSettings:
    """Return the settings of a predictor with some of them changed.

    Raises:
        InputError: a setting is wrong; `place` is where the changes are.
    """
    written = own.model_dump(mode="json", exclude_unset=True)
    return PREDICTORS.parse({**written, "type": own.type, **changes}, place)


def chosen_predictor(
    own: PredictorSettings | None, given: str | Mapping[str, Any], place: str
) -> PredictorSettings:
    """Return the settings of another predictor, if its type is given, or changed ones of `own`.

    Raises:
        InputError: a setting is wrong; `place` is where it is.
    """
    if own is None or isinstance(given, str) or "type" in given:
        return PREDICTORS.parse(given, place)
    return changed_predictor(own, given, place)
