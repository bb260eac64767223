"""Weights: check which parameters share one tensor, and which initial values they have."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, prod

from ...specs.findings import InputError, did_you_mean, nearest, pointer, respelled
from ...specs.form import INIT_ACTIONS, Init, SpecForm
from ...specs.lost_parts import Lost, scope_of
from ...specs.patches.selections import SelectError, glob, read_selection
from ..ir.graph import BlockNode, Graph, InitRule, Node, RepeatNode, Scope
from ..ir.selection import chosen_in
from ..ir.traverse import in_model, scopes, uses, visits
from .records import MISSING, CheckContext, Checker, Doubts, FindingSet

MOST_NODES = 100_000
"""Maximum number of nodes of a spec with its repeats expanded."""
_SUGGESTED = 2_000
"""Maximum number of nodes for which all parameters are searched for a suggestion."""
MOST_TIED = 10_000
"""Maximum number of paths in all groups, with `*` expanded to every copy."""
_SHAPES_SHOWN = 8
"""Maximum number of parameters that a finding about their shapes lists."""
Groups = tuple[tuple[str, ...], ...]
"""Groups of paths of parameters that share one tensor."""
EACH = "*"
"""In a path, stands for the number of every copy of a repeat."""


def written_out(spec: SpecForm, root: Scope, *, expand: bool = True) -> Groups:
    """Return the groups of tied parameters, with `*` expanded to every copy.

    Args:
        spec: the spec as written, with valid ties.
        root: its scope.
        expand: whether to expand `*` and the ties of templates; there may be too many copies.
    """
    covered = set[str]()
    groups = []
    for group in spec.tie:
        written = [copy for path in group for copy in (_copies(root, path) if expand else (path,))]
        groups.append(tuple(path for path in dict.fromkeys(written) if path not in covered))
        covered.update(written)
    ties = tuple(group for group in groups if len(group) > 1)
    inner = tuple(group for _, group in _of_templates(root)) if expand else ()
    return united((*ties, *inner)) if inner else ties


def _of_templates(root: Scope) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the ties of each copy of the templates in a graph: template, and paths in the graph."""
    if not any(body.ties for body in scopes(root, models=False)):
        return
    for visit in visits(root, "weights"):
        body, node = visit.body, visit.node
        around = isinstance(node, RepeatNode) and not node.share and visit.kind == "name"
        if body is None or around or in_model(visit):
            continue
        for group in body.ties:
            paths = [path for member in group for path in _copies(body, member)]
            yield body.name, tuple(f"{visit.module}.{path}" for path in dict.fromkeys(paths))


def united(groups: Groups) -> Groups:
    """Return groups without common members: those that share one are joined."""
    home: dict[str, list[str]] = {}
    for group in groups:
        merged = list({id(home[path]): home[path] for path in group if path in home}.values())
        into = merged[0] if merged else []
        for other in merged[1:]:
            into += other
            home |= dict.fromkeys(other, into)
        into += [path for path in group if path not in home]
        home |= dict.fromkeys(group, into)
    joined = {id(group): group for group in home.values()}.values()
    return tuple(tuple(group) for group in joined if len(group) > 1)


def ties_fit(spec: SpecForm, root: Scope, findings: FindingSet) -> bool:
    """Return whether the ties of a spec may be expanded, and report if they name too much."""
    count = 0
    for index, group in enumerate(spec.tie):
        for path in group:
            count += sum(1 for _ in itertools.islice(_copies(root, path), MOST_TIED + 1 - count))
        if count > MOST_TIED:
            findings.report(
                code="P06",
                at=pointer("tie", index),
                problem=f"the ties of the spec name more than {MOST_TIED:,} parameters",
                help="share the weights of copies by '\"share\": true' instead of '*'",
            )
            return False
    for name, group in _of_templates(root):
        count += len(group)
        if count > MOST_TIED:
            findings.report(
                code="P06",
                at=pointer("blocks", name, "tie"),
                problem=f"the ties of the spec name more than {MOST_TIED:,} parameters",
                help="use the template in fewer copies, or tie fewer parameters",
            )
            return False
    return True


def _copies(scope: Scope, path: str) -> Iterator[str]:
    """Yield the paths that a path with `*` stands for; an unknown path is yielded unchanged."""
    name, _, remainder = path.partition(".")
    node = next((node for node in scope.nodes if node.name == name), None)
    if EACH not in path.split(".") or node is None or isinstance(node, BlockNode):
        yield path
    elif not isinstance(node, RepeatNode) or node.share:
        yield from (f"{name}.{inner}" for inner in _copies(node.body, remainder))
    else:
        number, _, remainder = remainder.partition(".")
        for index, body in node.copies():
            if number in (EACH, str(index)):
                yield from (f"{name}.{index}.{inner}" for inner in _copies(body, remainder))


def check_ties(checker: Checker, root: Scope, *, expand: bool = True) -> None:
    """Report tied paths that do not exist, occur twice, or have different shapes.

    Args:
        checker: the records of the check.
        root: the scope of the spec; paths into parts that are unknown are not checked.
        expand: whether to check paths with `*`; there may be too many copies.
    """
    context, findings, memo, doubts = checker
    unclear = _Unclear.of(context, doubts)
    _check_groups(context.spec.tie, root, findings, unclear, "", expand=expand)
    for (name, *_), body in list(memo.typed.items()):
        if body is not None and body.ties:
            at = pointer("blocks", name)
            _check_groups(body.ties, body, findings, unclear, at, expand=expand)


def _check_groups(
    groups: Groups, root: Scope, findings: FindingSet, unclear: _Unclear, home: str, *, expand: bool
) -> None:
    """Check the ties of one scope, of which `home` is the JSON Pointer."""
    report = findings.report
    visited: set[str] = set()
    suggestions: Mapping[str, object] | None = None
    for index, group in enumerate(groups):
        at = home + pointer("tie", index)
        members = [
            (member_index, copy)
            for member_index, path in enumerate(group)
            if expand or EACH not in path
            for copy in _copies(root, path)
        ]
        single = len(group) < 2 and EACH not in "".join(group)  # noqa: PLR2004 - a tie has two ends
        if single:
            report(
                code="W09",
                at=at,
                problem="a group of fewer than two parameters ties nothing",
                help="name the parameters that share a tensor, or remove the group",
            )
        twice = None
        for member_index, path in members:
            twice = twice or ((member_index, path) if path in visited else None)
            visited.add(path)
        if twice:
            report(
                code="W09",
                at=at + pointer(twice[0]),
                problem=f"parameter '{twice[1]}' is tied twice",
                help="put all parameters that share a tensor into one group",
            )
        shapes: dict[str, tuple[int, ...]] = {}
        unknown: set[int] = set()
        for member_position, path in members:
            location = at + pointer(member_position)
            shape = root.shape_of(path)
            certain = _is_certain(root, path, unclear, home)
            if shape is not None:
                shapes |= {path: shape} if certain else {}
            elif certain and member_position not in unknown:
                unknown.add(member_position)
                suggestions = (
                    _suggested(root, expand=expand) if suggestions is None else suggestions
                )
                _report_unknown(suggestions, path, location, findings)
        if len(set(shapes.values())) > 1:
            report(
                code="T06",
                at=at,
                problem="tied parameters have different shapes",
                evidence=tuple(
                    f"{path}  {list(shape)}"
                    for path, shape in itertools.islice(_differing(shapes), _SHAPES_SHOWN)
                ),
                help="make the sizes equal, or untie them",
            )


def _differing(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the first parameter of each shape, then the others."""
    first = {shape: path for path, shape in reversed([*shapes.items()])}
    yield from ((path, shape) for path, shape in shapes.items() if first[shape] == path)
    yield from ((path, shape) for path, shape in shapes.items() if first[shape] != path)


@dataclass(frozen=True, slots=True)
class _Unclear:
    """Places of parts whose parameters are not certain, because of other mistakes."""

    unsized: Mapping[str, frozenset[str]]
    """Pointers of nodes to the uses of blocks in them whose parameters have unknown shapes."""
    unnamed: Mapping[str, frozenset[str]]
    """The same for blocks of which some parameters are unknown."""
    doubts: Doubts
    lost: Lost

    @classmethod
    def of(cls, context: CheckContext, doubts: Doubts) -> _Unclear:
        """Return what is unclear in a check."""
        return cls(_by_node(doubts.unsized), _by_node(doubts.unnamed), doubts, context.lost)

    def __bool__(self) -> bool:
        """Return whether anything is not certain."""
        return bool(self.in_graph or self.lost.places)

    @property
    def in_graph(self) -> bool:
        """Whether anything of the nodes that could be read is not certain."""
        doubts = self.doubts
        return bool(doubts.unsized or doubts.unnamed or doubts.unplaced or doubts.uncounted)

    def uses(self, at: str) -> frozenset[str]:
        """Return the uses in a node of which some parameters are not certain."""
        return self.unsized.get(at, frozenset()) | self.unnamed.get(at, frozenset())


def _by_node(uses: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the pointers of nodes to those of the uses in them."""
    nodes: dict[str, set[str]] = {}
    for at in uses:
        scope, keys = scope_of(at)
        nodes.setdefault("/".join([scope, *keys[:2]]), set()).add(at)
    return {node: frozenset(inside) for node, inside in nodes.items()}


def _is_certain(scope: Scope, path: str, unclear: _Unclear, at: str = "") -> bool:
    """Return whether a parameter, or the lack of one, is not the consequence of a mistake."""
    if not unclear:
        return True
    name, _, remainder = path.partition(".")
    node = next((node for node in scope.nodes if node.name == name), None)
    if node is None:
        nodes = f"{at}/nodes"
        lost = unclear.lost.entries(nodes)
        return nodes + pointer(name) not in unclear.doubts.unplaced and not nearest(name, lost)
    if isinstance(node, BlockNode):
        is_parameter = remainder in node.part.weights()
        return not (unclear.uses(node.at) if is_parameter else node.at in unclear.unnamed)
    body = node.body
    if isinstance(node, RepeatNode) and not node.share:
        number, _, remainder = remainder.partition(".")
        if node.at in unclear.doubts.uncounted:
            return False
        if not number.isdecimal() or int(number[:6]) >= node.repeat:
            return True
        body = node.instead.get(int(number), node.body)
    return _is_certain(body, remainder, unclear, pointer("blocks", body.name))


def _suggested(root: Scope, *, expand: bool) -> Mapping[str, object]:
    """Return the parameters among which suggestions are searched; none if there are too many."""
    copies = sum(node.repeat if isinstance(node, RepeatNode) else 1 for node in root.nodes)
    return root.weights() if expand and copies <= _SUGGESTED else {}


def _report_unknown(
    suggestions: Mapping[str, object], path: str, at: str, findings: FindingSet
) -> None:
    """Report an unknown path."""
    findings.report(
        code="N07",
        at=at,
        problem=f"unknown parameter '{path}'",
        help=did_you_mean(path, suggestions) or "'weft show --weights' lists them",
        fix=respelled(at, path, suggestions),
    )


def least_size(context: CheckContext, doubts: Doubts, graph: Graph) -> int | None:
    """Return how many parameters a graph has at least, whatever the mistakes in its spec.

    Returns:
        The number of parameters of which the shape is certain; None if all are certain.
    """
    unclear = _Unclear.of(context, doubts)
    sound = not any(at.startswith("/tie") for at in context.lost.places)
    ties = [[(path, graph.root.shape_of(path)) for path in group] for group in graph.ties]
    sound = sound and all(shape is not None for group in ties for _, shape in group)
    if sound and not unclear.in_graph:
        return None
    if any(at == "/tie" for at in context.lost.places):
        return 0
    total = graph.root.parameters() - _uncertain(graph.root, unclear)
    for group in ties:
        sizes = [
            prod(shape)
            for path, shape in group
            if shape is not None and _is_certain(graph.root, path, unclear)
        ]
        # A path that is wrong may have been meant to tie another parameter.
        wrong = sum(shape is None for _, shape in group)
        total -= sum(sizes[1:]) + wrong * max(sizes, default=0)
    return max(0, total)


def _uncertain(scope: Scope, unclear: _Unclear) -> int:
    """Return the number of parameters in a scope and below that are not certain."""
    sizes: dict[int, int] = {}

    def measured(inner: Scope) -> int:
        if id(inner) not in sizes:
            sizes[id(inner)] = sum(
                _in_node(node, unclear.uses(node.at))
                if isinstance(node, BlockNode)
                else sum(measured(body) * count for _, body, count in node.insides())
                for node in inner.nodes
            )
        return sizes[id(inner)]

    return measured(scope)


def _in_node(node: BlockNode, uncertain: frozenset[str]) -> int:
    """Return the number of parameters in some uses in a node; all if one is not found there."""
    if not uncertain:
        return 0
    inside = {at: part for at, part in uses(node) if at in uncertain}
    if inside.keys() != uncertain:
        return node.parameters()
    weights = (part.own_weights() for part in inside.values())
    return sum(prod(shape) for shapes in weights for shape in shapes.values())


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
    resolved = []
    for index, rule in enumerate(rules):
        at = home + pointer("init", index)
        value = _value(checker.context, checker.findings, rule, at)
        paths = _paths(checker, rule, scope, home, at)
        if value is not None and paths:
            action = _action(rule)
            resolved.append(
                InitRule(
                    select=rule.select,
                    weights=rule.weights,
                    action=action,
                    value=value,
                    paths=paths,
                    frozen=rule.frozen,
                )
            )
    return tuple(resolved)


def _action(rule: Init) -> str:
    """Return the only action of a rule, or ``""``."""
    actions = [key for key in INIT_ACTIONS if key in rule.model_fields_set]
    return actions[0] if len(actions) == 1 else ""


def _value(context: CheckContext, findings: FindingSet, rule: Init, at: str) -> float | None:
    """Return the number of a rule's action, or report why there is none."""
    action = _action(rule)
    if rule.frozen and rule.model_fields_set.isdisjoint(INIT_ACTIONS):
        return 0.0
    if not action:
        findings.report(
            code="W14",
            at=at,
            problem="a rule of 'init' has exactly one action",
            help=f"write one of {', '.join(INIT_ACTIONS)}; none is needed next to 'frozen'",
        )
        return None
    value = context.values.resolve(getattr(rule, action), at + pointer(action))
    if value is MISSING:
        return None
    if action == "zeros":
        right, expected = value is True, "true"
    else:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        right = number and isfinite(value) and (value >= 0 or action not in _NOT_NEGATIVE)
        expected = "a number, 0 or more" if action in _NOT_NEGATIVE else "a number"
    if right:
        return float(value)
    findings.report(
        code="W14",
        at=at + pointer(action),
        problem=f"'{action}' of a rule of 'init' is not {expected}",
        help=f"write {expected}",
    )
    return None


def _paths(checker: Checker, rule: Init, scope: Scope, home: str, at: str) -> tuple[str, ...]:
    """Return the parameters that a rule selects, or report that there are none."""
    if scope.size() > MOST_NODES:
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
    matches = tuple(path for path in names if _named(rule.weights, path))
    if not matches and not _may_reach(rule.select, scope, home, unknown):
        leaf_names = sorted({path.rpartition(".")[2] for path in names})
        checker.findings.report(
            code="W14",
            at=at + pointer("weights" if names else "select"),
            problem=f"'{rule.select}' has no parameter '{rule.weights}'"
            if names
            else f"'{rule.select}' has no parameters",
            help=f"known: {', '.join(leaf_names)}"
            if leaf_names
            else "select nodes with parameters",
        )
    return matches


def _lost(context: CheckContext) -> set[str]:
    """Return the parts that could not be read and may have had nodes or parameters."""
    ways = {
        location: scope_of(location)[1] for location in context.lost.places - context.lost.extra
    }
    return {
        location
        for location, way in ways.items()
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
    template_names = set().union(*templates.values())
    chosen = set().union(*(pointers for name, pointers in templates.items() if fits(name)))
    for location in places:
        where, way = scope_of(location)
        if where == home:
            reached = way[:1] != ["nodes"] or len(way) == 1 or fits(way[1])
        else:  # a template that no known node uses may belong to an unknown one
            reached = where in chosen or where not in template_names
        if reached:
            return True
    return False


def _templates(node: Node) -> set[str]:
    """Return the JSON Pointers of all templates in a node."""
    bodies = (body for _, body, _ in node.insides())
    return {pointer("blocks", inner.name) for body in bodies for inner in scopes(body)}


def _named(pattern: str, path: str) -> bool:
    """Return whether the last parts of a path match a pattern, such as `inner.weight`."""
    parts = path.split(".")
    return any(glob(pattern, ".".join(parts[start:])) for start in range(len(parts)))
