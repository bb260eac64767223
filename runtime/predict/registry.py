"""Predictor registry: every predictor that a run may use.

To register a predictor, add a line here.  Installed packages add predictors through the
entry-point group `weft.predictors`; a run can never name code.
"""

from __future__ import annotations

from ..system.plugins import Plugins
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
    "cky": ".trees:Cky",
    "tree_tags": ".trees:TreeTags",
    "tree_beam": ".trees:TreeBeam",
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
