"""Advise: report what is unusual in a correct spec, unless the spec says that it is meant.

A spec says so by listing the code: `"allow": ["D03"]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...specs.findings import Finding, did_you_mean, pointer, respelled
from ...specs.text.edits import removing
from ..ir.graph import Graph
from .axes import unused_axes
from .losses import dropped_losses
from .masks import unused_masks
from .norms import missing_norms
from .positions import causal_encoders, missing_positions, unmixed_steps
from .remark import Remark
from .vocabulary import missing_projection

CHECKS: Mapping[str, Callable[[Graph], Iterator[Remark]]] = {
    "D02": unused_masks,
    "D03": missing_positions,
    "D04": causal_encoders,
    "D05": unmixed_steps,
    "D06": missing_norms,
    "D07": missing_projection,
    "D09": dropped_losses,
    "D10": unused_axes,
}
"""Code of each warning to the function that looks for it."""
IDLE_EXCEPTION = "D08"
"""Code of the warning about an entry of `allow` without effect."""


def advise(graph: Graph) -> list[Finding]:
    """Return the warnings about a checked graph, without those that its spec allows.

    The pointers are those of the merged spec, as in the findings of the checker.
    """
    allowed = graph.spec.allow
    found = {code: list(_findings(code, graph)) for code in CHECKS}
    made = [each for code in CHECKS if code not in allowed for each in found[code]]
    for index, code in enumerate(allowed):
        if found.get(code):
            continue
        known, at = code in CHECKS, pointer("allow", index)
        made.append(
            Finding(
                code=IDLE_EXCEPTION,
                level="warning",
                at=at,
                problem=f"nothing in the spec needs the exception '{code}'"
                if known
                else f"'{code}' is not the code of a warning",
                help="remove it" if known else did_you_mean(code, CHECKS),
                source=graph.source,
                fix=removing(at, certain=True) if known else respelled(at, code, CHECKS),
            )
        )
    return made


def _findings(code: str, graph: Graph) -> Iterator[Finding]:
    """Yield the warnings of one kind, each place once."""
    seen = set[str]()
    for remark in CHECKS[code](graph):
        if remark.at in seen:
            continue
        seen.add(remark.at)
        yield Finding(
            code=code,
            level="warning",
            at=remark.at,
            problem=remark.problem,
            evidence=remark.evidence,
            help=f"{remark.help}; if it is meant, add '{code}' to 'allow'",
            source=graph.source,
            fix=remark.fix,
        )
