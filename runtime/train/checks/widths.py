"""Whether the initial weights and rates of a run can follow the width of its model; no torch."""

from __future__ import annotations

from collections.abc import Iterator

from ....graphs.passes.widths import growth, wider_heads
from ....specs.findings import Finding, InputError
from ..objective import Objective
from ..run import Run

SHOWN = 3
"""Parts that a finding names."""


def wrong_parametrization(run: Run, objective: Objective) -> Iterator[Finding]:
    """Yield a finding about a base model that there is not, or that does not fit the run."""
    if run.parametrization is None:
        return
    at = "/parametrization/mup/base"
    try:
        base = objective.base(run.parametrization.mup.base)
        growth(objective.graph, base)
    except InputError as error:
        yield Finding(
            code="R04",
            at=f"{at}{error.location}",
            problem=error.problem,
            help=error.help,
        )
        return
    heads = list(wider_heads(objective.graph, base))
    if heads:
        yield Finding(
            code="R04",
            level="warning",
            at=at,
            problem="heads are wider than in the base model, so that scores grow with them",
            evidence=tuple(heads[:SHOWN]),
            help="let the number of heads grow with the width, or give the base its 'heads'",
        )
