"""Checks of ladders: the sizes of a family of rows must differ, and their loss be measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ....plugin import Finding, LossMetric, losses_of_training, pointer, unknown_losses
from ..document import StudySettings
from .base import Base
from .planned import Planned


def wrong_ladders(study: StudySettings, base: Base, rows: Sequence[Planned]) -> Iterator[Finding]:
    """Yield a finding for each ladder whose sizes are equal, or whose metric is not measured."""
    for name, ladder in study.ladders.items():
        rungs = [planned for planned in rows if planned.row.ladder == name]
        at, metric = pointer("ladders", name, "metric"), ladder.metric
        for rung in rungs:
            places = [(metric, at)]
            unfit = [*unknown_losses(rung.graph, places), *losses_of_training(rung.graph, places)]
            yield from (replace(finding, source=base.study) for finding in unfit)
            names = [other.name for other in study.measure.metrics or rung.run.metrics()]
            if not isinstance(metric, LossMetric) and metric.name not in names:
                yield Finding(
                    code="Y13",
                    at=at,
                    problem=f"the study does not measure '{metric.name}'",
                    help="add it to 'measure.metrics'",
                    source=base.study,
                )
        sizes: dict[float, Planned] = {}
        for rung in rungs:
            size = getattr(rung.costs, ladder.against)
            first = sizes.setdefault(size, rung)
            if first is not rung:
                yield Finding(
                    code="Y13",
                    at=pointer("ladders", name, "sizes"),
                    problem=f"'{first.name}' and '{rung.name}' are equally large: {size:,.0f}"
                    f" {ladder.against.replace('_', ' ').replace('flops', 'FLOPs')}",
                    help="list params that change the size, or other values",
                    source=base.study,
                )
