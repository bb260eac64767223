"""Objectives: check a spec whose outputs are losses, and the models in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from ....specs.findings import did_you_mean, pointer, renamed, respelled
from ....specs.form import Spec
from ....specs.held import inlined
from ...ir.graph import Graph, Node, RepeatNode, Scope
from ...ir.traverse import model_of, scopes
from ..records import MISSING, Context, Findings, Memo, Values

_NO_MODEL = "add a node that uses a param with a spec and is not frozen, or remove 'deploy'"


def self_contained(spec: Spec, context: Context, memo: Memo) -> Spec:
    """Return a spec in which complete specs replace the names of the specs that params hold."""
    params = {
        name: inlined(spec.params[name], context.source)
        for name, loaded in memo.models.items()
        if loaded is not None and not loaded.mistakes and isinstance(spec.params.get(name), dict)
    }
    return spec.model_copy(update={"params": {**spec.params, **params}}) if params else spec


def ties_of_models(root: Scope) -> tuple[tuple[str, ...], ...]:
    """Return the tied parameters of the models in a graph, by their paths in the graph."""
    return tuple(
        tuple(f"{module}.{path}" for path in group)
        for module, model in _models(root, "")
        for group in model.ties
    )


def _models(scope: Scope, before: str) -> Iterator[tuple[str, Graph]]:
    """Yield the outermost models below a scope with the paths of their modules."""
    if not holds_models(scope):
        return
    for node in scope.nodes:
        model, path = model_of(node), f"{before}{node.name}"
        if node.shares:
            continue
        if model is not None:
            yield path, model
        elif isinstance(node, RepeatNode):
            for below, body in node.owners():
                yield from _models(body, f"{path}.{below}")
        else:
            for below, body, _ in node.insides():
                yield from _models(
                    body, f"{path}{below.replace('/', '.')}" if below else f"{path}."
                )


def holds_models(root: Scope) -> bool:
    """Return whether a node of a graph contains a model."""
    return any(model_of(node) for scope in scopes(root) for node in scope.nodes)


def deployed(spec: Spec, root: Scope) -> str | None:
    """Return the node whose model training leaves behind: the only one that it can be, or none."""
    models = [node.name for node in _trained(root)]
    if spec.deploy is not None:
        return spec.deploy if spec.deploy in models else None
    return models[0] if len(models) == 1 else None


def _trained(root: Scope) -> Iterator[Node]:
    """Yield the nodes with models that train."""
    for node in root.nodes:
        if model_of(node) and not node.shares and not node.frozen:
            yield node


def loss_weights(spec: Spec, values: Values, root: Scope, findings: Findings) -> dict[str, float]:
    """Return the weight of every loss, and report weights that are not numbers."""
    losses = [name for name, type_ in root.gives().items() if type_.kind == "loss"]
    weights = dict.fromkeys(losses, 1.0)
    for name, text in spec.losses.items():
        at = pointer("losses", name)
        value = values.resolve(text, at)
        if name not in spec.outputs or (name in root.outputs and name not in weights):
            findings.report(
                code="O02",
                at=at,
                problem=f"'{name}' is not a loss: no output of kind 'loss' has this name",
                help=did_you_mean(name, losses)
                or "add an output that reads a loss block, or remove the weight",
                fix=renamed(at, name, losses, spec.losses),
            )
        elif value is not MISSING and name in weights:
            if isinstance(value, bool) or not isinstance(value, int | float):
                findings.report(
                    code="O02",
                    at=at,
                    problem=f"the weight of loss '{name}' is not a number",
                    help="write a number, such as 0.5, or an expression that reads a param",
                )
            else:
                weights[name] = float(value)
    return weights


def check_objective(spec: Spec, graph: Graph, findings: Findings) -> None:
    """Report what is wrong with the losses and the models of an objective."""
    trained = [node.name for node in _trained(graph.root)]
    if spec.deploy is not None and spec.deploy not in trained and spec.deploy in spec.nodes:
        placed = any(node.name == spec.deploy for node in graph.root.nodes)
        if placed:
            findings.report(
                code="O01",
                at="/deploy",
                problem=f"node '{spec.deploy}' has no model that trains",
                help=did_you_mean(spec.deploy, trained) or _NO_MODEL,
            )
    elif spec.deploy is not None and spec.deploy not in spec.nodes:
        findings.report(
            code="O01",
            at="/deploy",
            problem=f"there is no node '{spec.deploy}' to deploy",
            help=did_you_mean(spec.deploy, trained) or _NO_MODEL,
            fix=respelled("/deploy", spec.deploy, trained),
        )
    complete = graph.outputs.keys() == spec.outputs.keys()
    if graph.step_axis is not None and holds_models(graph.root):
        findings.report(
            code="O05",
            at="/step",
            problem="a spec that decodes step by step cannot hold a model in a param",
            help="import it as a template, with 'spec' in 'blocks', or remove 'step'",
        )
    elif trained and complete and not graph.losses and (spec.deploy or spec.losses):
        findings.report(
            code="O03",
            at="/outputs",
            problem="none of the outputs of this objective is a loss",
            help="add an output that reads a loss block, such as cross_entropy@1",
        )
    if graph.losses:
        for node in _trained(graph.root):
            _check_outputs(spec, graph.root, node, findings)


def _check_outputs(spec: Spec, root: Scope, node: Node, findings: Findings) -> None:
    """Report outputs of a model that nothing reads although they have parameters of their own."""
    model = model_of(node)
    if model is None:
        return
    names = {each.name for each in root.nodes if each.module == node.name}
    wires = {value for each in spec.nodes.values() for value in each.in_.values()}
    wires |= set(spec.outputs.values())
    unread = [
        port
        for port, type_ in model.outputs.items()
        if type_.kind != "loss" and not any(f"{name}.{port}" in wires for name in names)
    ]
    read = [port for port in model.outputs if port not in unread]
    used = _behind(model.root, read)
    for port in unread:
        own = _behind(model.root, [port]) - used
        size = sum(
            prod(shape)
            for inner in model.root.nodes
            if inner.name in own
            for shape in inner.weights().values()
        )
        if size:
            findings.report(
                code="O04",
                at=node.at,
                problem=f"nothing reads output '{port}' of '{node.name}', so that its"
                f" {size:,} parameters do not train",
                help=f"wire '{node.name}.{port}' to a loss, or use a model without this output",
            )


def _behind(scope: Scope, ports: Iterable[str]) -> set[str]:
    """Return the nodes that some outputs of a scope depend on."""
    nodes = {node.name: node for node in scope.nodes}
    waiting = [scope.outputs[port].partition(".")[0] for port in ports if port in scope.outputs]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in found:
            found.add(name)
            waiting += [value.partition(".")[0] for value in nodes[name].wires.values()]
    return found
