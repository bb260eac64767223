"""Whether the spec of a run fits the task and the settings of the run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from ....graphs.ir.graph import Graph, Part
from ....graphs.ir.traverse import position_limits, visits
from ....graphs.passes.select import chosen
from ....graphs.passes.unpad import plan_unpad
from ....specs.findings import Finding, InputError, pointer
from ..run import Run
from ..schedule import learning_rate
from .effects import changed, unused
from .needs import needs_of


def ports(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for the first thing that the task needs and the spec does not have."""
    needs = needs_of(run)
    for name, kind in needs.inputs.items():
        if name not in graph.inputs or graph.inputs[name].kind != kind:
            yield _unfit(f"{needs.task} needs an input '{name}' of kind {kind}", run, graph)
            return
    for name in needs.outputs:
        if name not in graph.outputs:
            yield _unfit(f"{needs.task} needs an output '{name}'", run, graph)
            return
    if needs.steps and graph.step_axis is None:
        yield _unfit(f"{needs.task} needs a spec that decodes step by step", run, graph)
        return
    yield from _unfilled(run, graph)
    yield from _untrained(run, graph)
    yield from _vocabulary(run, graph)


def _unfilled(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each input of the spec that the task does not fill."""
    needs = needs_of(run)
    for name in graph.inputs:
        if name not in needs.inputs:
            yield Finding(
                code="R04",
                at="/spec",
                problem=f"nothing fills the input '{name}' of '{graph.name}'",
                evidence=(f"{needs.task} fills {', '.join(needs.inputs)}",),
                help="name a spec without this input, or another task",
            )


def _untrained(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each output that no loss reads and that has parameters of its own."""
    needs = needs_of(run)
    read = {
        port
        for port, type_ in graph.outputs.items()
        if port in needs.outputs or (type_.kind == "loss" and run.loss.auxiliary)
    }
    trained = _above(graph, read)
    for port in graph.outputs:
        own = _above(graph, {port}) - trained
        size = sum(node.parameters() for node in graph.root.nodes if node.name in own)
        if port not in read and size:
            yield Finding(
                code="R04",
                at="/spec",
                problem=f"no loss reads the output '{port}' of '{graph.name}',"
                f" so {size:,} parameters are not trained",
                evidence=(f"the loss reads {', '.join(sorted(read))}",),
                help="name a spec without this output",
            )


def _above(graph: Graph, ports: Collection[str]) -> set[str]:
    """Return the nodes on which some outputs of a graph depend."""
    wires = {node.name: node.wires.values() for node in graph.root.nodes}
    waiting, found = [graph.root.outputs[port] for port in ports], set[str]()
    while waiting:
        name = waiting.pop().partition(".")[0]
        if name in wires and name not in found:
            found.add(name)
            waiting += wires[name]
    return found


def _unfit(problem: str, run: Run, graph: Graph) -> Finding:
    settings = "'task'" if run.task != "parsing" else "'task' or 'parsing.decoder'"
    return Finding(
        code="R04",
        at="/spec",
        problem=f"{problem}, which '{graph.name}' does not have",
        evidence=(f"inputs  {', '.join(graph.inputs)}", f"outputs {', '.join(graph.outputs)}"),
        help=f"name a spec for this task, or change {settings}",
    )


def _vocabulary(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding if the spec has another vocabulary than the tokenizer will have."""
    size = run.tokenizer.vocab_size
    if "target" not in graph.inputs or run.task == "parsing":
        return  # the size of a symbol vocabulary is not known before the data is read
    found: dict[str, Any] = {"source": graph.inputs["source"].size}
    if run.tokenizer.target != "symbols":
        found["target"] = graph.inputs["target"].size
        found["logits"] = graph.outputs["logits"].axes[-1]
    for name, given in found.items():
        if given == size:
            continue
        own = next((p for p in ("vocab", "source_vocab", "target_vocab") if p in run.params), None)
        yield Finding(
            code="R04",
            at="/spec" if own is None else pointer("params", own),
            problem=f"'{name}' of the spec has size {given}, but the tokenizer has {size}",
            help=f"remove '{own}', so that it follows the tokenizer"
            if own is not None
            else f"set tokenizer.vocab_size to {given}, or name a spec with a param 'vocab'",
        )
        return


def limits(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each limit of length that contradicts the filter."""
    longest, filters = run.data.filter.max_length, changed(run.data.filter, "max_length")
    most = min(position_limits(graph), default=None)
    if most is not None and longest + 1 > most:
        yield Finding(
            code="R04",
            at="/data/filter/max_length" if filters else "/spec",
            problem=f"sentences may have {longest + 1} tokens, end token included, but"
            f" '{graph.name}' has {most} positions",
            help=f"set data.filter.max_length to {most - 1}, or give the spec more positions"
            if most > 1
            else "give the spec more positions",
        )
    if filters and longest + 1 > run.batch.tokens:
        yield Finding(
            code="R04",
            at="/batch/tokens",
            problem=f"a batch has {run.batch.tokens} tokens, but a sentence may have"
            f" {longest + 1}, end token included",
            help=f"set it to at least {longest + 1}, or data.filter.max_length to"
            f" {run.batch.tokens - 1}",
        )


def model_settings(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each setting that the model cannot fulfill or does not read."""
    if changed(run.loss, "auxiliary") and not any(
        type_.kind == "loss" for type_ in graph.outputs.values()
    ):
        problem = f"'{graph.name}' has no output of kind 'loss'"
        yield unused("/loss/auxiliary", problem, "remove it")
    if run.padding == "unpadded" and not (plan := plan_unpad(graph)).axes:
        yield Finding(
            code="R04",
            at="/padding",
            problem=f"'{graph.name}' cannot be unpadded: {plan.why}",
            help="set 'padding' to 'padded', or remove it",
        )
    if run.dropout_from > 1 and not any(_drops(visit.part) for visit in visits(graph.root)):
        problem = f"'{graph.name}' has no dropout with these params"
        yield unused("/dropout_from", problem, "remove it, or set the params of dropout")
    try:
        learning_rate(1, run.schedule, graph.params.get("d_model"))
    except InputError as error:
        yield Finding(code="R04", at="/schedule", problem=error.problem, help=error.help)


def _drops(part: object) -> bool:
    """Return whether a block has a probability of dropout above 0, or might have one."""
    if not isinstance(part, Part):
        return False
    found = [value for name, value in part.arguments.items() if "drop" in name]
    return any(not isinstance(value, int | float) or value > 0 for value in found)


def selections(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each selection that selects nothing."""
    wanted = run.activation_checkpointing
    for number, text in enumerate((wanted,) if isinstance(wanted, str) else wanted):
        try:
            chosen(graph, text)
        except InputError as error:
            at = pointer("activation_checkpointing", *([] if isinstance(wanted, str) else [number]))
            yield Finding(code="R03", at=at, problem=error.problem, help=error.help)


def partition(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding if no block of the model can be partitioned as the run requests."""
    if run.parallel.tensor == 1:
        return
    from ..distributed.tensor_parallel import plan  # noqa: PLC0415 - a slow import

    made = plan(graph, run.parallel.tensor)
    if not made.blocks:
        yield Finding(
            code="R04",
            at="/parallel/tensor",
            problem=f"no block of '{graph.name}' can be partitioned over {run.parallel.tensor}",
            evidence=tuple(f"{path}: {why}" for path, why in list(made.whole.items())[:1]),
            help="set it to a number that divides its heads and d_ff, or to 1",
        )
