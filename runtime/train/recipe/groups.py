"""Which weights each optimizer of a run updates, and with which settings; no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ....graphs.passes.freeze import selected_weights
from ....specs.findings import Finding, InputError, pointer
from ...data.settings import Settings
from .optimizers import OptimizerGroup, OptimizerSettings

if TYPE_CHECKING:
    from ....graphs.ir.graph import Graph
    from ....graphs.passes.widths import WidthGrowth

SHOWN = 3
"""Weights that a finding names."""


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Weights that one optimizer updates with the same settings."""

    optimizer: OptimizerSettings
    weights: tuple[str, ...]
    """Paths of the weights; of tied ones, the first."""
    select: str = ""
    """The selection of the group; empty for the weights that no group selects."""
    rate: float | None = None
    """Rate at the peak of the schedule; None for the peak times `factor`."""
    factor: float = 1.0
    decays_all: bool = False
    """Whether vectors decay too."""
    widths: Mapping[str, float] = field(default_factory=dict)
    """Further factor of the rate of each weight in a model that is wider than its base."""

    def peak(self, weight: str, peak: float) -> float:
        """Return the highest rate of a weight, given that of the schedule."""
        rate = peak * self.factor if self.rate is None else self.rate
        return rate * self.widths.get(weight, 1.0)


@dataclass(frozen=True, slots=True)
class _Claims:
    """The weights of each group of a run, and what is wrong with them."""

    weights: list[dict[str, None]]
    """Weights of each group."""
    others: list[str]
    """Weights that no group selects."""
    findings: list[Finding]


def weight_groups(
    optimizer: OptimizerSettings, graph: Graph, trained: Iterable[str]
) -> list[WeightGroup]:
    """Return the groups of the weights of a graph; those that no group selects come first.

    Args:
        optimizer: settings of a run, which fit the graph.
        graph: what trains.
        trained: paths of the weights that train.
    """
    claims = _claims(optimizer, graph, trained)
    groups = [WeightGroup(optimizer, tuple(claims.others))] if claims.others else []
    for group, weights in zip(optimizer.groups, claims.weights, strict=True):
        groups.append(
            WeightGroup(
                optimizer.of_group(group),
                tuple(weights),
                select=group.select,
                rate=group.rate,
                factor=1.0 if group.factor is None else group.factor,
                decays_all="weight_decay" in group.options,
            )
        )
    return groups


def wrong_groups(
    optimizer: OptimizerSettings, graph: Graph, trained: Iterable[str]
) -> Iterator[Finding]:
    """Yield a finding for each group that cannot be, or changes nothing; arguments as above."""
    claims = _claims(optimizer, graph, trained)
    yield from claims.findings
    if claims.findings:
        return
    shapes = graph.root.weights()
    yield from _not_taken(optimizer, claims.others, shapes, None)
    for number, (group, weights) in enumerate(zip(optimizer.groups, claims.weights, strict=True)):
        settings, at = optimizer.of_group(group), pointer("optimizer", "groups", number)
        yield from _not_taken(settings, weights, shapes, number)
        same = settings == optimizer.model_copy(update={"clip": None, "groups": ()})
        if same and group.rate is None and group.factor in (None, 1.0):
            yield Finding(
                code="R01",
                at=at,
                problem=f"the group '{group.select}' has the optimizer, options and rate of all"
                " other weights",
                help="remove it, or set its 'rate', 'factor', 'type' or an option",
            )
    inherits = any(group.type in (None, optimizer.type) for group in optimizer.groups)
    options = optimizer.model_fields_set - {"clip", "groups", "type"}
    if not claims.others and options and not inherits:
        yield Finding(
            code="R01",
            at=pointer("optimizer", min(options)),
            problem="every weight belongs to a group with another optimizer",
            help="remove it",
        )


def _not_taken(
    settings: OptimizerSettings,
    weights: Iterable[str],
    shapes: Mapping[str, tuple[int, ...]],
    number: int | None,
) -> Iterator[Finding]:
    """Yield a finding about weights with shapes that an optimizer does not update."""
    wrong = [path for path in weights if not settings.takes(shapes[path])]
    if not wrong:
        return
    kind, [first, *_] = settings.type, wrong
    help_ = f"""set 'type' to 'adamw', and add {{"select": "**[dim=2]", "type": "{kind}"}} to"""
    yield Finding(
        code="R04",
        at="/optimizer/type" if number is None else pointer("optimizer", "groups", number),
        problem=f"'{kind}' does not update weights of the shape {list(shapes[first])}, such as"
        f" '{first}'" + f" and {len(wrong) - 1:,} more" * (len(wrong) > 1),
        help=f"{help_} 'groups'"
        if number is None
        else "end 'select' with '[dim=2]', or add a selection to 'except'",
    )


def _claims(optimizer: OptimizerSettings, graph: Graph, trained: Iterable[str]) -> _Claims:
    """Return the weights of each group."""
    first = {path: group[0] for group in graph.ties for path in group}
    names = dict.fromkeys(first.get(path, path) for path in trained)
    names = {path: None for path in graph.root.weights() if path in names}
    findings: list[Finding] = []
    claimed: dict[str, int] = {}
    weights = []
    for number, group in enumerate(optimizer.groups):
        inside = _selected(group, graph, first, number, findings)
        of_group = {path: None for path in names if path in inside}
        weights.append(of_group)
        if inside and not of_group:
            findings.append(
                Finding(
                    code="R03",
                    at=pointer("optimizer", "groups", number, "select"),
                    problem=f"'{group.select}' selects no weight that trains",
                    help="remove the group, or correct 'freeze'",
                )
            )
        twice: dict[int, list[str]] = {}
        for path in of_group:
            if path in claimed:
                twice.setdefault(claimed[path], []).append(path)
        for other, paths in twice.items():
            select = optimizer.groups[other].select
            findings.append(
                Finding(
                    code="R09",
                    at=pointer("optimizer", "groups", number, "select"),
                    problem=f"group {number}, '{group.select}', and group {other}, '{select}', both"
                    f" select {len(paths):,} weight" + "s" * (len(paths) > 1),
                    evidence=tuple(f"both select '{path}'" for path in paths[:SHOWN]),
                    help=f"""add "except": ["{select}"] to the group""",
                )
            )
        claimed |= dict.fromkeys(of_group, number)
    return _Claims(weights, [path for path in names if path not in claimed], findings)


def _selected(
    group: OptimizerGroup,
    graph: Graph,
    first: Mapping[str, str],
    number: int,
    findings: list[Finding],
) -> set[str]:
    """Return the weights that a group selects, of tied ones the first, and report what is wrong."""
    chosen: list[set[str]] = []
    for key, text in (("select", group.select), *(("except", text) for text in group.except_)):
        at = pointer("optimizer", "groups", number, key)
        if key == "except":
            at += pointer(len(chosen) - 1)
        try:
            chosen.append({first.get(path, path) for path in selected_weights(graph, text)})
        except InputError as error:
            findings.append(Finding(code="R03", at=at, problem=error.problem, help=error.help))
            return set()
        if key == "except" and chosen[0].isdisjoint(chosen[-1]):
            findings.append(
                Finding(
                    code="R01",
                    at=at,
                    problem=f"'{text}' selects no weight that '{group.select}' selects",
                    help="remove it",
                )
            )
    return chosen[0].difference(*chosen[1:])


class Mup(Settings):
    """Maximal update parametrization; Yang et al. 2022, https://arxiv.org/abs/2203.03466."""

    base: Annotated[dict[str, int], Field(min_length=1)]
    """Params of the model at the width where its rates were chosen, such as `{"d_model": 128,
    "heads": 2}`."""


class Parametrization(Settings):
    """How the initial weights and their rates follow the width of the model."""

    mup: Mup
    """Keeps the best rates of a narrow model in a wide one."""


def with_widths(
    groups: Sequence[WeightGroup], grown: Mapping[str, WidthGrowth]
) -> list[WeightGroup]:
    """Return groups of weights whose rates follow the width of the model.

    Args:
        groups: the groups.
        grown: how each weight grows.
    """
    return [
        replace(
            group,
            widths={
                path: group.optimizer.width_factor(grown[path])
                for path in group.weights
                if path in grown
            },
        )
        for group in groups
    ]
