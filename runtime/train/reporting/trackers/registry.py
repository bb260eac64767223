"""Tracker registry: every tracker that a run may use.

To register a tracker, add a line here.  Installed packages add trackers through the entry-point
group `weft.trackers`; a run can never name code.
"""

from __future__ import annotations

from ....system.plugins import Plugins
from .tracker import TrackerSettings

SHIPPED = {
    "tensorboard": ".tensorboard:TensorBoard",
    "trackio": ".trackio:Trackio",
    "wandb": ".wandb:WeightsAndBiases",
    "mlflow": ".mlflow:MLflow",
}
"""Name of a shipped tracker to `file:Class`, relative to this folder."""

TRACKERS: Plugins[TrackerSettings] = Plugins(
    "tracker",
    "weft.trackers",
    TrackerSettings,  # type: ignore[type-abstract]  # plug-ins are subclasses of it
    SHIPPED,
    __package__,
)
"""All trackers; `TRACKERS.parse("tensorboard", place)` returns the settings of one."""
