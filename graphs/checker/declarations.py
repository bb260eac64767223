"""Declarations: check names, params, requirements, limits of size, and budgets of a spec.

Inputs of a spec become arguments of the model, so they may not be words of Python or of generated
code; other names are free.  Limits are checked before anything is expanded, budgets when the graph
is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...specs.expressions import ExpressionError, evaluate, is_expression, names_in, words_in
from ...specs.findings import did_you_mean, pointer
from ...specs.form import (
    BUDGETS,
    RepeatedTemplate,
    ShareNode,
    SpecForm,
    Use,
)
from ...specs.load import in_place_of
from ..ir.graph import Graph, Scope, reached, unread
from ..ir.python_names import is_reserved
from .records import MISSING, CheckContext, Doubts, FindingSet, ParamValues, evaluation_order
from .weights import MOST_NODES, least_size

if TYPE_CHECKING:
    from ..cost.budgets import GraphSize

ATTRIBUTES = frozenset({"training", "batched", "casts"})
"""Words that may not be a node: what torch and training set in every module."""


def check_names(spec: SpecForm, findings: FindingSet) -> None:
    """Report nodes that hide what modules set, inputs that cannot be arguments, and sizes."""
    scopes = {"": spec.nodes, **{pointer("blocks", n): t.nodes for n, t in spec.blocks.items()}}
    for at, nodes in scopes.items():
        for name in nodes.keys() & ATTRIBUTES:
            _refuse(findings, "node", name, at + pointer("nodes", name))
    for name in spec.inputs:
        if is_reserved(name):
            _refuse(findings, "input", name, pointer("inputs", name))
    for name in spec.params.keys() & BUDGETS.keys():
        _refuse(findings, "param", name, pointer("params", name))


def _refuse(findings: FindingSet, what: str, name: str, at: str) -> None:
    findings.report(
        code="N09",
        at=at,
        problem=f"{what} '{name}' has a reserved name",
        help=f"give it another name, such as '{name}_{what}'",
    )


def evaluate_params(
    spec: SpecForm, overrides: Mapping[str, Any], findings: FindingSet
) -> ParamValues:
    """Return the values of a spec's params, which resolve the rest of the spec.

    Args:
        spec: the spec as written.
        overrides: values that replace the spec's own.
        findings: receives what is wrong.

    Returns:
        The values by name, and the `ParamValues` that resolve the rest of the spec.
    """
    for name in overrides:
        if name not in spec.params:
            findings.report(
                code="P04",
                at=pointer("params", name),
                problem=f"override '{name}' is not a param of the spec",
                help=did_you_mean(name, spec.params),
            )
    written = {**spec.params}
    for name, value in overrides.items():
        if name in spec.params:
            written[name] = in_place_of(spec.params[name], value)
    values = ParamValues(written, findings, overrides)
    for name in evaluation_order(written, findings, "/params"):
        values.resolved[name] = values.resolve(written[name], pointer("params", name))
    return values


def check_requirements(spec: SpecForm, values: ParamValues, findings: FindingSet) -> None:
    """Report every requirement on a spec's params that does not hold."""
    for index, text in enumerate(spec.require):
        if not words_in(text) & BUDGETS.keys():
            _check_requirement(text, index, values, findings)


def check_budget(
    text: str, index: int, values: ParamValues, findings: FindingSet, sizes: Mapping[str, GraphSize]
) -> None:
    """Report a requirement on the size of a graph that does not hold.

    An example of a requirement is `parameters <= 70e6`.

    Args:
        text: the requirement.
        index: its place in `require`.
        values: the values of the spec's params.
        findings: receives what is wrong.
        sizes: the sizes that the requirement reads, by their names in `BUDGETS`.
    """
    counts = {name: size.count for name, size in sizes.items()}
    least = frozenset(name for name, size in sizes.items() if not size.exact)
    axes = dict.fromkeys(f"sizes  {size.sizes}" for size in sizes.values() if size.sizes)
    _check_requirement(text, index, values.with_(counts), findings, least, tuple(axes))


_FACTORS = (1.25, 2, 10, 1_000)
"""Factors by which a graph may be larger than the part of it that is known."""


def _fails_above(text: str, values: ParamValues, least: Iterable[str]) -> bool:
    """Return whether a requirement does not hold either for larger values of some names."""
    for factor in _FACTORS:
        sizes = {name: int(values.resolved[name] * factor) + 1 for name in least}
        try:
            if evaluate(text, {**values.resolved, **sizes}) is not False:
                return False
        except ExpressionError:
            return False
    return True


def _check_requirement(
    text: str,
    index: int,
    values: ParamValues,
    findings: FindingSet,
    least: frozenset[str] = frozenset(),
    more: tuple[str, ...] = (),
) -> None:
    """Report a requirement that does not hold.

    Args:
        text: the requirement.
        index: its place in `require`.
        values: the values of the names that it reads.
        findings: receives what is wrong.
        least: names whose values may be larger.
        more: additional lines of evidence.
    """
    at = pointer("require", index)
    holds = values.resolve(f"={text}", at, text)
    if holds is MISSING or holds is True:
        return
    if holds is not False:
        findings.report(
            code="E01",
            at=at,
            problem=f"'{text}' is {holds}, not a comparison",
            help="write a comparison, such as 'd_model % heads == 0'",
        )
        return
    if least and not _fails_above(text, values, least):
        return
    names = names_in(text)
    values.doubtful.update(names)
    settings = ", ".join(
        f"{name} {'>=' if name in least else '='} {_shown(values.resolved[name])}" for name in names
    )
    help_ = "change one of these params" if names else "remove it: it reads no param"
    if names and BUDGETS.keys() >= set(names):
        where = "; ".join(dict.fromkeys(BUDGETS[name] for name in names))
        help_ = f"make the model smaller ({where}), or raise the budget"
    findings.report(
        code="E05",
        at=at,
        problem=f"'{text}' does not hold",
        evidence=(f"given  {settings}", *more) if names else (),
        help=help_,
    )


def _shown(value: Any) -> str:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_integer and value >= _LONG else str(value)


_LONG = 1_000_000
"""Smallest number that is shown with thousands separators."""


DEEPEST = 32
"""Maximum nesting depth of templates."""


def templates_used(spec: SpecForm, params: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return which templates each template uses; ``""`` is the spec itself.

    Args:
        spec: the spec as written.
        params: values of its params, some of which may choose templates.
    """
    scopes = {"": spec.nodes, **{name: t.nodes for name, t in spec.blocks.items()}}
    uses = {
        name: {other for node in nodes.values() for other in _templates_of(node, params)}
        for name, nodes in scopes.items()
    }
    for name, template in spec.blocks.items():
        uses[name].update(_chosen_in(template.params))
    return {name: spec.blocks.keys() & used for name, used in uses.items()}


def unused_templates(spec: SpecForm, params: Mapping[str, Any]) -> list[str]:
    """Return the templates that nothing uses, except those that only unused templates use."""
    uses = templates_used(spec, params)
    unused = uses.keys() - reached("", uses)
    read = {name: uses[name] & unused for name in spec.blocks if name in unused}
    return sorted(min(part) for part in unread(read))


def within_limits(root: Scope, findings: FindingSet) -> bool:
    """Return whether a graph may be expanded, and report a node that stands for too many."""
    if root.size() <= MOST_NODES:
        return True
    largest = max(root.nodes, key=lambda node: node.size())
    findings.report(
        code="P06",
        at=largest.at,
        problem=f"the expanded spec has {_rough(root.size())} nodes, more than {MOST_NODES:,}",
        evidence=(f"'{largest.name}' has {_rough(largest.size())} of them",),
        help="repeat less often, or nest fewer repeats",
    )
    return False


def ignored_inputs(spec: SpecForm) -> dict[str, set[str]]:
    """Return the inputs of templates that repeats demand, whether or not they read them.

    A value is carried to become an output of the repeat, so each copy has it as an input.  All
    copies get the same wires: a template that replaces single copies may ignore any, and that of
    the others those which one of these reads.
    """
    ignored: dict[str, set[str]] = {}
    scopes = [spec.nodes, *(template.nodes for template in spec.blocks.values())]
    for node in (node for scope in scopes for node in scope.values()):
        if isinstance(node, RepeatedTemplate):
            ignored.setdefault(node.block, set()).update(node.carry)
            for name in spec.blocks.keys() & {*node.instead.values()}:
                template = spec.blocks[name]
                wires = (wire for inner in template.nodes.values() for wire in inner.in_.values())
                ignored.setdefault(name, set()).update(template.inputs)
                ignored.setdefault(node.block, set()).update(wires, template.outputs.values())
    return ignored


def _templates_of(node: Use | RepeatedTemplate | ShareNode, params: Mapping[str, Any]) -> list[str]:
    """Return every name that a node uses, slots and block choices for templates included."""
    if isinstance(node, ShareNode):
        return []
    if isinstance(node, RepeatedTemplate):
        return [node.block, *node.instead.values(), *_chosen_in(node.params)]
    chosen = params.get(node.use[1:].strip()) if is_expression(node.use) else None
    use = chosen.get("use") if isinstance(chosen, dict) else node.use
    inside = (name for inner in node.fill.values() for name in _templates_of(inner, params))
    return [use if isinstance(use, str) else "", *inside, *_chosen_in(node.params)]


def _chosen_in(params: Mapping[str, Any]) -> Iterator[str]:
    """Yield the blocks and templates that the values of params choose."""
    for value in params.values():
        if isinstance(value, dict):
            yield str(value.get("use", ""))
            yield from _chosen_in(value)


def _rough(count: int) -> str:
    return f"{count:,}" if count < 10**15 else "over 10^15"


def check_budgets(
    graph: Graph, context: CheckContext, findings: FindingSet, doubts: Doubts, *, small: bool
) -> None:
    """Report every requirement on the size of a graph that does not hold or cannot be checked.

    Next to other mistakes, a budget is reported only if the part of the graph that depends on none
    of them exceeds it.

    Args:
        graph: the graph of the spec, which is incomplete if there are findings.
        context: what the check reads.
        findings: receives what is wrong; those so far decide what can be checked.
        doubts: what mistakes leave unknown.
        small: whether the spec is within the limits of size.
    """
    spec = context.spec
    wrong = bool(findings.all or context.lost.places)
    decodes = all(finding.code not in ("D01", "N05") for finding in findings.all)
    measures: dict[str, GraphSize] = {}
    for index, text in enumerate(spec.require):
        reads = words_in(text) & BUDGETS.keys()
        if not reads or reads & spec.params.keys():  # a param with that name is reported
            continue
        if "decode_state" in reads and not (
            decodes and _keeps(graph, context, findings, text, index)
        ):
            continue
        for name in reads - measures.keys():
            measures[name] = _measured(name, graph, context, doubts, wrong=wrong, small=small)
        sizes = {name: measures[name] for name in reads}
        check_budget(text, index, context.values, findings, sizes)


def _keeps(
    graph: Graph, context: CheckContext, findings: FindingSet, text: str, index: int
) -> bool:
    """Return whether the decoding state of a graph is known, or report why it is not."""
    from ..cost.decode_state import blocks_without_formula  # noqa: PLC0415 - few specs have budgets

    unknown = blocks_without_formula(graph)
    if graph.step_axis is None:
        why = "the spec has no 'step', so it does not decode"
        help_ = "add 'step', or remove this budget"
    elif unknown:
        why = f"{unknown[0]} does not declare its decoding state"
        help_ = f"declare 'state' in the BlockType of {unknown[0]}, or remove this budget"
    else:
        return True
    if not context.lost.covers("/step"):
        problem = f"cannot evaluate '{text}': {why}"
        findings.report(code="E01", at=pointer("require", index), problem=problem, help=help_)
    return False


def _measured(
    name: str, graph: Graph, context: CheckContext, doubts: Doubts, *, wrong: bool, small: bool
) -> GraphSize:
    """Return a size of a graph, or the size that it has at least whatever the mistakes."""
    from ..cost.budgets import (  # noqa: PLC0415 - few specs have budgets
        GraphSize,
        measured_flops,
        measured_state,
    )

    if not small:
        return GraphSize(0, exact=False)
    if name == "parameters":
        least = least_size(context, doubts, graph)
        return GraphSize(graph.parameters() if least is None else least, exact=least is None)
    doubtful = doubts.unsized | doubts.unnamed
    certain = (lambda at: at not in doubtful) if wrong else None
    measure = measured_flops if name == "flops" else measured_state
    return measure(graph, certain)
