"""Declarations: check names, params, requirements, limits of size, and budgets of a spec.

Names of nodes become attributes of modules, and names of ports become arguments of generated
functions, so neither may be a word that is already in use there.  Limits are checked before
anything is expanded, budgets when the graph is complete.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterable, Mapping
from typing import Any

from ...specs.expressions import ExpressionError, evaluate, is_expression, names_in, words_in
from ...specs.findings import did_you_mean, pointer
from ...specs.form import (
    BUDGETS,
    AnyNode,
    RepeatNode,
    ShareNode,
    Spec,
    Use,
    number_of_copies,
    selected_copies,
)
from ...specs.load import in_place_of
from ...specs.references import words_read
from ..cost.budgets import Measure, measured_flops, measured_state
from ..cost.decode_state import blocks_without_formula
from ..ir.graph import Graph, cycles, ordered, reached, unread
from .records import MISSING, Context, Doubts, Findings, Values
from .weights import least_size

MODULE_WORDS = frozenset(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda
    double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter
    get_submodule half ipu load_state_dict modules mtia named_buffers named_children
    named_modules named_parameters parameters register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state
    set_submodule share_memory state_dict to to_empty train type xpu zero_grad
    """.split()  # noqa: SIM905 - one word per line would fill the page
)
"""Public attributes of `torch.nn.Module`, listed so that the check does not need torch."""
OWN_WORDS = frozenset({"begin", "read_prompt", "step", "tie", "training", "weights"})
"""Additional attributes of generated modules."""
ARGUMENT_WORDS = frozenset(
    {"self", "capacity", "state", "position", "layer", "layer_state", "nn", "torch", "zip", "range"}
)
"""Variables of generated functions."""
NODE_WORDS = MODULE_WORDS | OWN_WORDS | {"zip"}
"""Words that may not be the name of a node."""
_CONSTANTS = frozenset({"none", "true", "false"})
"""Names whose class would be named like a constant of Python."""


def check_names(spec: Spec, findings: Findings) -> None:
    """Report every name that generated code could not use."""
    scopes = [("", spec.nodes, spec.inputs, spec.outputs)]
    for name, template in spec.blocks.items():
        at = pointer("blocks", name)
        scopes.append((at, template.nodes, template.inputs, template.outputs))
        if name.lower() in _CONSTANTS:
            _refuse(findings, "template", name, at)
    if spec.name.lower() in _CONSTANTS:
        _refuse(findings, "spec", spec.name, "/name")
    for at, nodes, inputs, outputs in scopes:
        for name in nodes:
            if keyword.iskeyword(name) or name in NODE_WORDS:
                _refuse(findings, "node", name, at + pointer("nodes", name))
        for side, ports in (("inputs", inputs), ("outputs", outputs)):
            for name in ports:
                if keyword.iskeyword(name) or name in ARGUMENT_WORDS:
                    _refuse(findings, "port", name, at + pointer(side, name))

    for name in spec.params.keys() & BUDGETS.keys():
        _refuse(findings, "param", name, pointer("params", name))


def _refuse(findings: Findings, what: str, name: str, at: str) -> None:
    findings.report(
        code="N09",
        at=at,
        problem=f"{what} '{name}' has a reserved name",
        help=f"give it another name, such as '{name}_{what}'",
    )


def evaluate_params(spec: Spec, overrides: Mapping[str, Any], findings: Findings) -> Values:
    """Return the values of a spec's params, which resolve the rest of the spec.

    Args:
        spec: the spec as written.
        overrides: values that replace the spec's own.
        findings: receives what is wrong.

    Returns:
        The values by name, and the `Values` that resolve the rest of the spec.
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
    values = Values(written, findings, overrides)
    for name in _order(written, findings):
        values.resolved[name] = values.resolve(written[name], pointer("params", name))
    return values


_READERS_SHOWN = 8
"""Maximum number of params of a cycle in a finding."""


def _order(written: Mapping[str, Any], findings: Findings) -> list[str]:
    """Return the params in an order in which each follows the params that it reads."""
    reads = {
        name: [other for other in words_read(value) if other in written]
        for name, value in written.items()
    }
    for cycle in cycles(reads):
        first = min(cycle)
        names = ", ".join(f"'{name}'" for name in sorted(cycle))
        findings.report(
            code="E04",
            at=pointer("params", first),
            problem=f"params read each other in a cycle: {names}",
            evidence=tuple(
                f"'{name}' is {json.dumps(written[name])[:80]}"
                for name in sorted(cycle)[:_READERS_SHOWN]
            ),
            help="give one of them a plain value",
        )
        reads = {
            name: [other for other in others if other not in cycle]
            for name, others in reads.items()
            if name not in cycle
        }
    return ordered(reads)


def check_requirements(spec: Spec, values: Values, findings: Findings) -> None:
    """Report every requirement on a spec's params that does not hold."""
    for index, text in enumerate(spec.require):
        if not words_in(text) & BUDGETS.keys():
            _check_requirement(text, index, values, findings)


def check_budget(
    text: str, index: int, values: Values, findings: Findings, sizes: Mapping[str, Measure]
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


def _fails_above(text: str, values: Values, least: Iterable[str]) -> bool:
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
    values: Values,
    findings: Findings,
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


MOST_NODES = 100_000
"""Maximum number of nodes of a spec with its repeats expanded."""
DEEPEST = 32
"""Maximum nesting depth of templates."""


def templates_used(spec: Spec, params: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return which templates each template uses; ``""`` is the spec itself.

    Args:
        spec: the spec as written.
        params: values of its params, some of which may choose templates.
    """
    scopes = {"": spec.nodes, **{name: t.nodes for name, t in spec.blocks.items()}}
    return {
        name: spec.blocks.keys()
        & {other for node in nodes.values() for other in _templates_of(node, params)}
        for name, nodes in scopes.items()
    }


def unused_templates(spec: Spec, params: Mapping[str, Any]) -> list[str]:
    """Return the templates that nothing uses, except those that only unused templates use."""
    uses = templates_used(spec, params)
    unused = uses.keys() - reached("", uses)
    read = {name: uses[name] & unused for name in spec.blocks if name in unused}
    return sorted(min(part) for part in unread(read))


def within_limits(spec: Spec, values: Values, findings: Findings) -> bool:
    """Return whether a spec may be expanded, and report what is too large or too deep."""
    uses = templates_used(spec, values.resolved)
    for cycle in cycles(uses):
        # A template that contains itself has its own finding; here the cycle is cut.
        for name in cycle:
            uses[name] -= cycle
    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}

    def measure(node: AnyNode, at: str) -> tuple[int, int]:
        if isinstance(node, ShareNode):
            return 1, 0
        if isinstance(node, RepeatNode):
            written = values.resolve(node.repeat, at + pointer("repeat"))
            count = number_of_copies(written) or 1
            deep = max(depths.get(name, 0) for name in _templates_of(node, values.resolved))
            others = sum(
                sizes.get(name, 1) * max(1, len(selected_copies(key, count)))
                for key, name in node.instead.items()
            )
            return count * sizes.get(node.block, 1) + others, deep
        inside = [name for name in _templates_of(node, values.resolved) if name in spec.blocks]
        size = _blocks_in(node) + sum(sizes.get(name, 1) for name in inside)
        return size, max((depths.get(name, 0) for name in inside), default=0)

    for name in ordered(uses):
        if not name:
            continue
        at = pointer("blocks", name)
        nodes = spec.blocks[name].nodes
        measures = [measure(node, at + pointer("nodes", key)) for key, node in nodes.items()]
        sizes[name] = max(1, sum(size for size, _ in measures))
        depths[name] = 1 + max((depth for _, depth in measures), default=0)
    measured = {key: measure(node, pointer("nodes", key)) for key, node in spec.nodes.items()}
    total = sum(size for size, _ in measured.values())
    if total > MOST_NODES:
        largest = max(measured, key=lambda key: measured[key][0])
        findings.report(
            code="P06",
            at=pointer("nodes", largest),
            problem=f"the expanded spec has {_rough(total)} nodes, more than {MOST_NODES:,}",
            evidence=(f"'{largest}' has {_rough(measured[largest][0])} of them",),
            help="repeat less often, or nest fewer repeats",
        )
    places = {pointer("nodes", key): depth for key, (_, depth) in measured.items()}
    places |= {pointer("blocks", name): depth for name, depth in depths.items()}
    deepest = max(places, key=lambda at: places[at], default="")
    too_deep = bool(deepest) and places[deepest] > DEEPEST
    if too_deep:
        findings.report(
            code="W06",
            at=deepest,
            problem=f"templates are nested {places[deepest]} levels deep",
            evidence=(f"at most {DEEPEST}",),
            help="use 'repeat' for copies in a row",
        )
    return total <= MOST_NODES and not too_deep


def stand_ins(spec: Spec) -> frozenset[str]:
    """Return the templates that only replace single copies of a repeat."""
    scopes = [spec.nodes, *(template.nodes for template in spec.blocks.values())]
    nodes = [node for scope in scopes for node in scope.values()]
    repeats = [node for node in nodes if isinstance(node, RepeatNode)]
    replacing = {name for node in repeats for name in node.instead.values()}
    return frozenset(replacing - {node.block for node in repeats})


def _templates_of(node: Use | RepeatNode | ShareNode, params: Mapping[str, Any]) -> list[str]:
    """Return every name that a node uses, slots included."""
    if isinstance(node, ShareNode):
        return []
    if isinstance(node, RepeatNode):
        return [node.block, *node.instead.values()]
    chosen = params.get(node.use[1:].strip()) if is_expression(node.use) else None
    use = chosen.get("use") if isinstance(chosen, dict) else node.use
    inside = (name for inner in node.fill.values() for name in _templates_of(inner, params))
    return [use if isinstance(use, str) else "", *inside]


def _blocks_in(use: Use) -> int:
    return 1 + sum(map(_blocks_in, use.fill.values()))


def _rough(count: int) -> str:
    return f"{count:,}" if count < 10**15 else "over 10^15"


def check_budgets(
    graph: Graph, context: Context, findings: Findings, doubts: Doubts, *, small: bool
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
    measures: dict[str, Measure] = {}
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


def _keeps(graph: Graph, context: Context, findings: Findings, text: str, index: int) -> bool:
    """Return whether the decoding state of a graph is known, or report why it is not."""
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
    name: str, graph: Graph, context: Context, doubts: Doubts, *, wrong: bool, small: bool
) -> Measure:
    """Return a size of a graph, or the size that it has at least whatever the mistakes."""
    if not small:
        return Measure(0, exact=False)
    if name == "parameters":
        least = least_size(context, doubts, graph)
        return Measure(graph.parameters() if least is None else least, exact=least is None)
    doubtful = doubts.unsized | doubts.unnamed
    certain = (lambda at: at not in doubtful) if wrong else None
    measure = measured_flops if name == "flops" else measured_state
    return measure(graph, certain)
