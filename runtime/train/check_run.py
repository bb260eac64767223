"""Checking a run before any of its data is read: its spec, files and settings.

The settings themselves are validated when the run is read (`run.py`).  Everything else that can be
known without the data is reported here, all of it at once; `weft check RUN` prints it, and
`weft train` refuses to begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import position_limits
from ...graphs.passes.select import chosen
from ...graphs.passes.unpad import plan_unpad
from ...specs.findings import Finding, InputError, SpecError, pointer
from ...specs.load import LoadedSpec
from ..data.settings import DataSettings, Files
from ..data.shards.corpus import Corpus
from ..data.text_files import resolve
from ..data.treebank.settings import ParsingSettings
from ..spec.check import graph_of, with_blocks
from .run import Run, spec_of


def check_run(
    run: Run, source: str, blocks: Iterable[BlockType] = (), *, shortened: bool = False
) -> list[Finding]:
    """Return everything that is wrong with a run, as far as it is known without its data.

    Args:
        run: the run.
        source: its file, or its name.
        blocks: block types that the run's spec may use besides the installed ones.
        shortened: whether the number of updates was overridden, as one does to try a run: it may
            then end before dropout begins.
    """
    found = [
        *without_effect(run, shortened=shortened),
        *_missing_files(run.data),
        *_missing_start(run),
    ]
    try:
        graph = graph_of_run(run, source, blocks)
    except SpecError as error:
        return [*(replace(one, source=source) for one in found), *error.findings]
    except InputError as error:
        found.append(Finding(code="R02", at="/spec", problem=error.problem, help=error.help))
    else:
        found += [
            *_of_the_graph(run, graph),
            *_selections(run, graph),
        ]
    return [replace(one, source=source) for one in found]


def refuse_wrong_run(
    run: Run, source: str, blocks: Iterable[BlockType] = (), *, shortened: bool = False
) -> None:
    """Raise an error if anything is wrong with a run; arguments as of `check_run`.

    Raises:
        SpecError: `check_run` found something.
    """
    if found := check_run(run, source, blocks, shortened=shortened):
        raise SpecError(found)


def graph_of_run(run: Run, source: str, blocks: Iterable[BlockType] = ()) -> Graph:
    """Return the graph of a run, with the vocabulary size requested for its tokenizer.

    Raises:
        InputError: there is no such spec.
        SpecError: the spec is wrong.
    """
    return graph_of(loaded_of_run(run, source, blocks))


def loaded_of_run(run: Run, source: str, blocks: Iterable[BlockType] = ()) -> LoadedSpec:
    """Return the spec of a run with the run's params; arguments and errors as of `graph_of_run`."""
    loaded = with_blocks(spec_of(run, source), blocks)
    sizes = dict.fromkeys(("vocab", "source_vocab", "target_vocab"), run.tokenizer.vocab_size)
    known = {name: size for name, size in sizes.items() if name in loaded.form.params}
    return replace(loaded, overrides={**known, **run.params})


def without_effect(run: Run, *, shortened: bool = False) -> Iterator[Finding]:
    """Yield a finding for each setting that was changed but has no effect."""
    yield from _optimizer(run)
    yield from _evaluation(run)
    yield from _search(run)
    if run.dropout_from > run.updates and not shortened:
        problem = f"dropout begins at update {run.dropout_from}, but the run ends at {run.updates}"
        yield _unused("/dropout_from", problem, f"set it to at most {run.updates}, or leave it out")
    schedule: Any = run.schedule
    if schedule.type == "cosine" and schedule.total < run.updates and schedule.floor == 0:
        problem = (
            f"the learning rate is 0 from update {schedule.total} on, but the run has {run.updates}"
        )
        yield _unused("/schedule/total", problem, f"set 'total' to {run.updates}, or a 'floor'")
    if run.task != "parsing" and run.parsing != ParsingSettings():
        problem = f"the task '{run.task}' does not read 'parsing'"
        yield _unused("/parsing", problem, "remove it, or set 'task' to 'parsing'")


def _optimizer(run: Run) -> Iterator[Finding]:
    kind, settings, default = run.optimizer.type, run.optimizer, type(run.optimizer)()
    users = {
        "betas": ("adam", "adamw", "muon"),
        "momentum": ("muon", "sgd"),
        "eps": ("adam", "adamw", "muon"),
    }
    for name, readers in users.items():
        if kind not in readers and getattr(settings, name) != getattr(default, name):
            yield _unused(
                f"/optimizer/{name}",
                f"the optimizer '{kind}' has no '{name}'",
                f"remove it, or set 'type' to one of {', '.join(readers)}",
            )


def _evaluation(run: Run) -> Iterator[Finding]:
    settings, default = run.evaluate, type(run.evaluate)()
    if settings.bleu:
        return
    if run.best != "nll":
        yield Finding(
            code="R01",
            at="/evaluate/best",
            problem=f"the best checkpoint is chosen by '{run.best}', which 'bleu': false turns off",
            help="set 'best' to 'nll', or 'bleu' to true",
        )
    for name in ("beam", "sentences", "lowercase"):
        if getattr(settings, name) != getattr(default, name):
            problem = f"'{name}' is about translations of the validation text, which are turned off"
            yield _unused(f"/evaluate/{name}", problem, "remove it, or set 'bleu' to true")


def _search(run: Run) -> Iterator[Finding]:
    search, default = run.search, type(run.search)()
    readers = (
        ("alpha", search.penalty != "none", "'penalty' is 'none'"),
        ("diversity", search.groups > 1, "'groups' is 1"),
        ("iterations", run.task == "mask_predict", f"the task is '{run.task}'"),
        ("lengths", run.task == "mask_predict", f"the task is '{run.task}'"),
    )
    for name, is_read, why in readers:
        if not is_read and getattr(search, name) != getattr(default, name):
            yield _unused(f"/search/{name}", f"'{name}' has no effect: {why}", "remove it")


def _unused(at: str, problem: str, help_: str) -> Finding:
    return Finding(code="R01", at=at, problem=problem, help=help_)


def _missing_files(data: DataSettings) -> Iterator[Finding]:
    """Yield a finding for each text file that is missing or outside of the data root."""
    parts: list[tuple[tuple[str, ...], Files]] = [
        (("train",), data.train),
        (("valid",), data.valid),
        *((("test", name), files) for name, files in data.test.items()),
    ]
    root = Path(data.root)
    if not root.is_dir():
        yield Finding(
            code="R02",
            at="/data/root",
            problem=f"there is no folder '{data.root}'",
            help="set data.root to the folder of the text: --set data.root=DIR",
        )
        return
    for where, files in parts:
        for side in ("source", "target", "trees"):
            for number, name in enumerate(getattr(files, side)):
                at = pointer("data", *where, side, number)
                try:
                    path = resolve(root, name)
                except InputError as error:
                    yield Finding(code="R02", at=at, problem=error.problem, help=error.help)
                    continue
                if not path.is_file():
                    yield Finding(
                        code="R02",
                        at=at,
                        problem=f"'{data.root}' has no file '{name}'",
                        help="name a file below data.root, or set data.root to its folder",
                    )


def _missing_start(run: Run) -> Iterator[Finding]:
    if run.start is not None and not (Path(run.start) / "spec.json").is_file():
        yield Finding(
            code="R02",
            at="/start",
            problem=f"there is no checkpoint in '{run.start}'",
            help="give a folder such as outputs/RUN/averaged",
        )


def refuse_long_pairs(graph: Graph, corpora: Iterable[Corpus]) -> None:
    """Raise an error if a pair is longer than the model has positions.

    Args:
        graph: graph of the model.
        corpora: prepared training and validation pairs.

    Raises:
        InputError: a pair is too long; the help names the filter that drops it.
    """
    most = min(position_limits(graph), default=None)
    lengths = (getattr(c, side) for c in corpora for side in ("source_lengths", "target_lengths"))
    longest = max((int(one.max(initial=0)) for one in lengths), default=0) + 1
    if most is not None and longest > most:
        raise InputError(
            f"the longest sentence has {longest} tokens, end token included, but '{graph.name}'"
            f" has {most} positions",
            place="/data/filter/max_length",
            help=f"set data.filter.max_length to {most - 1} (it does not drop validation pairs),"
            " or give the spec more positions",
        )


def _of_the_graph(run: Run, graph: Graph) -> Iterator[Finding]:
    if run.loss.auxiliary != _auxiliary_default(run) and not any(
        type_.kind == "loss" for type_ in graph.outputs.values()
    ):
        problem = f"'{graph.name}' has no output of kind 'loss'"
        yield _unused("/loss/auxiliary", problem, "remove it")
    if run.padding == "unpadded" and not (plan := plan_unpad(graph)).axes:
        yield Finding(
            code="R04",
            at="/padding",
            problem=f"'{graph.name}' cannot be unpadded: {plan.why}",
            help="set 'padding' to 'padded', or remove it",
        )


def _auxiliary_default(run: Run) -> float:
    default: float = type(run.loss)().auxiliary
    return default


def _selections(run: Run, graph: Graph) -> Iterator[Finding]:
    wanted = run.activation_checkpointing
    for number, text in enumerate((wanted,) if isinstance(wanted, str) else wanted):
        try:
            chosen(graph, text)
        except InputError as error:
            at = pointer("activation_checkpointing", *([] if isinstance(wanted, str) else [number]))
            yield Finding(code="R03", at=at, problem=error.problem, help=error.help)
