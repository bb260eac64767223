"""Predictor registry: every predictor that a run may use.

To register a predictor, add a line here.  Installed packages add predictors through the
entry-point group `weft.predictors`; a run can never name code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....specs.findings import InputError, did_you_mean
from ...system.plugins import Plugins
from .predictor import PredictorSettings

SHIPPED = {
    "beam": ".search:Beam",
    "greedy": ".search:Greedy",
    "sample": ".search:Sample",
    "mbr": ".search:Mbr",
    "mask_predict": ".search:MaskPredict",
    "generate": ".search:Generate",
    "argmax": ".classify:Argmax",
    "tags": ".classify:Tags",
    "regression": ".classify:Regression",
    "ctc": ".ctc:Ctc",
    "fill": ".fill:Fill",
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


SEARCHES = ("beam", "greedy", "sample", "mbr")
"""Predictors that write the same outputs in other ways, so that one can replace another."""


def changed_predictor(
    settings: PredictorSettings, changes: Mapping[str, Any], location: str
) -> PredictorSettings:
    """Return the settings of a predictor with some of them changed.

    A search becomes another one that has the changed settings, and keeps those that both have:
    `{"beam": 8}` makes a greedy search a beam search, `{"top_k": 10}` samples, and
    `{"metric": "chrf"}` chooses by minimum Bayes risk.

    Raises:
        InputError: a setting is wrong, or has no effect; `location` is where the changes are.
    """
    names = changes.keys() - {"type"}
    others = [name for name in SEARCHES if settings.type in SEARCHES and name != settings.type]
    types = [str(changes["type"])] if "type" in changes else [settings.type, *others]
    fields = {name: PREDICTORS.find(name).model_fields.keys() for name in types}
    type_ = next((name for name in types if names <= fields[name]), types[0])
    if idle := sorted(names - fields[type_]):
        raise InputError(
            f"the predictor '{type_}' has no setting '{idle[0]}'",
            location=f"{location}/{idle[0]}",
            help=did_you_mean(idle[0], fields[type_] - {"type"}),
        )
    written = settings.model_dump(mode="json", exclude_unset=True, include={*fields[type_]})
    return PREDICTORS.parse({**written, **changes, "type": type_}, location)


def chosen_predictor(
    settings: PredictorSettings | None, choice: str | Mapping[str, Any], location: str
) -> PredictorSettings:
    """Return another predictor, if its type is given, or changed settings of `settings`.

    Raises:
        InputError: a setting is wrong; `location` is where it is.
    """
    if isinstance(choice, str) or "type" in choice:
        return PREDICTORS.parse(choice, location)
    return changed_predictor(settings or PREDICTORS.parse("beam", location), choice, location)
