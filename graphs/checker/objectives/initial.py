"""Initial weights: check the rules of `init`, and find the parameters that they select."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from ....specs.findings import InputError, pointer
from ....specs.form import INIT_ACTIONS, Init
from ....specs.patches.select import SelectError, glob, read_selection
from ....specs.recovery.lost import scope_of
from ...ir.graph import Node, Scope
from ...ir.selection import chosen_in
from ...ir.traverse import scopes
from ...ir.weights.init_rule import InitRule
from ..records import MISSING, Checker, Context, Findings

_NOT_NEGATIVE = ("normal", "uniform")


def resolved_rules(
    checker: Checker, rules: Iterable[Init], scope: Scope, home: str
) -> tuple[InitRule, ...]:
    """Return the rules of a scope with their values and parameters, and report what is wrong.

    Args:
        checker: the state that the scopes share.
        rules: the rules as written.
        scope: the root of a spec, or the inside of a template.
        home: its JSON Pointer.
    """
    found = []
    for index, rule in enumerate(rules):
        at = home + pointer("init", index)
        value = _value(checker.context, checker.findings, rule, at)
        paths = _paths(checker, rule, scope, home, at)
        if value is not None and paths:
            action = _action(rule)
            found.append(
                InitRule(
                    select=rule.select,
                    weights=rule.weights,
                    action=action,
                    value=value,
                    paths=paths,
                )
            )
    return tuple(found)


def _action(rule: Init) -> str:
    """Return the only action of a rule, or ``""``."""
    actions = [key for key in INIT_ACTIONS if key in rule.model_fields_set]
    return actions[0] if len(actions) == 1 else ""


def _value(context: Context, findings: Findings, rule: Init, at: str) -> float | None:
    """Return the number of a rule's action, or report why there is none."""
    action = _action(rule)
    if not action:
        findings.report(
            code="W14",
            at=at,
            problem="a rule of 'init' has exactly one action",
            help=f"write one of {', '.join(INIT_ACTIONS)}",
        )
        return None
    value = context.values.resolve(getattr(rule, action), at + pointer(action))
    if value is MISSING:
        return None
    if action == "zeros":
        right, wanted = value is True, "true"
    else:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        right = number and isfinite(value) and (value >= 0 or action not in _NOT_NEGATIVE)
        wanted = "a number, 0 or more" if action in _NOT_NEGATIVE else "a number"
    if right:
        return float(value)
    findings.report(
        code="W14",
        at=at + pointer(action),
        problem=f"'{action}' of a rule of 'init' is not {wanted}",
        help=f"write {wanted}",
    )
    return None


def _paths(checker: Checker, rule: Init, scope: Scope, home: str, at: str) -> tuple[str, ...]:
    """Return the parameters that a rule selects, or report that there are none."""
    if not checker.context.small:
        return ()
    unknown = (
        checker.doubts.unplaced
        | checker.doubts.uncounted
        | checker.doubts.unnamed
        | _lost(checker.context)
    )
    if "[" in rule.select:  # predicates read params, which are a guess there
        unknown |= checker.doubts.unsized
    try:
        modules = chosen_in(scope, rule.select)
    except InputError as error:
        if not _may_reach(rule.select, scope, home, unknown):
            checker.findings.report(
                code="W14",
                at=at + pointer("select"),
                problem=error.problem,
                help=error.help or "'weft show' lists the nodes",
            )
        return ()
    inside = tuple(f"{module}." for module in modules)
    names = [path for path in scope.weights() if path.startswith(inside)]
    found = tuple(path for path in names if _named(rule.weights, path))
    if not found and not _may_reach(rule.select, scope, home, unknown):
        known = sorted({path.rpartition(".")[2] for path in names})
        checker.findings.report(
            code="W14",
            at=at + pointer("weights" if names else "select"),
            problem=f"'{rule.select}' has no parameter '{rule.weights}'"
            if names
            else f"'{rule.select}' has no parameters",
            help=f"known: {', '.join(known)}" if known else "select nodes with parameters",
        )
    return found


def _lost(context: Context) -> set[str]:
    """Return the parts that could not be read and may have had nodes or parameters."""
    ways = {place: scope_of(place)[1] for place in context.lost.places - context.lost.extra}
    return {
        place
        for place, way in ways.items()
        if way[:1] in ([], ["nodes"], ["blocks"], ["params"]) and "in" not in way
    }


def _may_reach(select: str, scope: Scope, home: str, places: Iterable[str]) -> bool:
    """Return whether a selection may select something in one of the unknown places.

    A selection that cannot be parsed, or that selects the spec itself, is a mistake in any case.

    Args:
        select: the selection, from the nodes of the scope on.
        scope: the scope of the rule, as far as it is known.
        home: its JSON Pointer.
        places: JSON Pointers of unknown parts.
    """
    try:
        selection = read_selection(select)
    except SelectError:
        return False
    if selection.target == "spec":
        return False
    first = selection.segments[0] if selection.target == "nodes" else None

    def fits(node: str) -> bool:
        return first is None or first.kind == "any" or first.fits("name", node, 0)

    templates = {node.name: _templates(node) for node in scope.nodes}
    known = set().union(*templates.values())
    chosen = set().union(*(found for name, found in templates.items() if fits(name)))
    for place in places:
        where, way = scope_of(place)
        if where == home:
            reached = way[:1] != ["nodes"] or len(way) == 1 or fits(way[1])
        else:  # a template that no known node uses may belong to an unknown one
            reached = where in chosen or where not in known
        if reached:
            return True
    return False


def _templates(node: Node) -> set[str]:
    """Return the JSON Pointers of all templates in a node."""
    bodies = (body for _, body, _ in node.insides())
    return {pointer("blocks", one.name) for body in bodies for one in scopes(body)}


def _named(pattern: str, path: str) -> bool:
    """Return whether the last parts of a path match a pattern, such as `inner.weight`."""
    parts = path.split(".")
    return any(glob(pattern, ".".join(parts[start:])) for start in range(len(parts)))
