"""The commands `weft parse`, `weft evaluate-parser`, `weft trees` and `weft score-trees`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ...plugin import (
    OF_THE_RUN,
    BeamFields,
    DataRoot,
    FieldsOf,
    InputError,
    InputRow,
    Json,
    LineWork,
    Mistakes,
    Outputs,
    Placement,
    Streamed,
    Test,
    argument,
    command,
    complete_files,
    file_option,
    one_file,
    open_checkpoints,
    option,
    out_option,
    read_lines,
    text_rows,
    works_apart,
    write_answers,
    write_beside,
    wrong,
)
from ...runtime.cli.common import terminal
from ...runtime.cli.common.parameters import Checkpoint, On, Processes
from ...runtime.cli.decoding import Buffer, Input, Output, Progress
from .predictor import TreeBeam

if TYPE_CHECKING:
    from collections.abc import Callable

    from ... import Model
    from .decode.parse import Parse
    from .metrics.evalb import EvalbScores, EvalbSettings
    from .trees.trees import Leaf, Tree

Form = Literal["line", "pretty", "words", "vinyals", "tensor2tensor", "top_down"]
"""How `weft trees` writes a tree."""
PARSING = "Parsing"
"""Title of these commands in the help."""
Search = Annotated[dict[str, Any], FieldsOf(BeamFields, panel="Search")]
OfTrees = Annotated[
    dict[str, Any],
    FieldsOf(TreeBeam, panel="Trees", without=("type", *BeamFields.model_fields)),
]
Place = Annotated[
    dict[str, Any], FieldsOf(Placement, panel="Models and devices", without=("shortlist",))
]
Prm = Annotated[
    str | None,
    file_option("--prm", "EVALB parameter file. [default: the settings of COLLINS.prm]"),
]


@command(
    PARSING,
    "weft parse outputs/parsing-craft/averaged --raw --draw trees/ < in.txt > out.trees",
    "weft parse outputs/parsing-craft/averaged in.txt -o out.trees --processes 2",
    note=OF_THE_RUN,
    memory="give a smaller --buffer: a batch has at most so many lines; or a smaller --beam",
)
def parse(
    checkpoint: Checkpoint,
    source: Input = None,
    *,
    out: Output = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Lines are plain text, one sentence each: split them into words as treebanks do. "
            "[default: words are separated by spaces]",
        ),
    ] = False,
    on_lines: Annotated[
        bool, typer.Option("--pretty", help="Write each tree on several lines.")
    ] = False,
    json_: Annotated[
        bool,
        typer.Option(
            "--json", help="Write one JSON object per line: tree, tags, score and repairs."
        ),
    ] = False,
    draw: Annotated[
        str | None,
        option(
            "--draw",
            "Draw the trees: one SVG per line into a folder, or the first tree into a file "
            "(.svg .png .pdf .dot).",
            metavar="PATH",
            complete=complete_files,
        ),
    ] = None,
    of_trees: OfTrees,
    search: Search,
    buffer: Buffer = None,
    processes: Processes = None,
    on: On = "local",
    progress: Progress = False,
    placement: Place,
) -> int:
    """Parse sentences line by line; an empty line gives an empty line.

    Raises:
        InputError: the checkpoint is not a parser, or a tree cannot be drawn.
    """
    from .decode.parse import BUFFER

    if on_lines and json_:
        raise wrong("--pretty", "it cannot be combined with --json")
    if draw is not None and works_apart(on, processes):
        raise wrong("--draw", "pictures are drawn by one process: leave out --processes and --on")
    form: Literal["line", "pretty", "json"] = "json" if json_ else "pretty" if on_lines else "line"
    work = Parsing(
        checkpoint, placement, source, {**of_trees, **search}, buffer or BUFFER, raw, form, draw
    )
    return write_answers(
        work,
        text_rows(source),
        out,
        what="lines parsed",
        on=on,
        processes=processes,
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class Parsing(LineWork):
    """The settings of `weft parse`."""

    options: dict[str, Any]
    buffer: int
    raw: bool
    form: Literal["line", "pretty", "json"]
    draw: str | None

    def open(self) -> Outputs:
        """Open the parser, and return what parses lines."""
        from .trees.sentences import raw_words_of, words_of
        from .trees.trees import pretty

        pictures = _Pictures(self.draw)
        predictor: Any = _open_parser(self.checkpoint, self.options, self.placement).predictor()
        words = raw_words_of if self.raw else words_of

        def outputs(rows: Iterable[InputRow], mistakes: Mistakes) -> Iterator[str]:
            asked = Streamed(rows, self.source, self.buffer, mistakes)
            empty: list[Leaf] = []
            parses = predictor.parser.parse(
                asked.values(lambda row: words(row["line"]), empty),
                buffer=self.buffer,
                warn=asked.warn,
            )
            for row, parsed in asked.answered(parses):
                number = row.number
                pictures.draw(number, None if parsed is None else parsed.tree)
                if self.form == "json":
                    fields = {"line": number, **record(parsed), **mistakes.record(number)}
                    yield json.dumps(fields, ensure_ascii=False) + "\n"
                elif parsed is None:
                    yield "\n"
                else:
                    yield f"{pretty(parsed.tree) if self.form == 'pretty' else parsed.tree}\n"

        return outputs


def _open_parser(checkpoint: str, options: dict[str, Any], placement: dict[str, Any]) -> Model:
    """Open the checkpoint, or the ensemble, of a parser.

    Raises:
        InputError: it cannot be opened, or it is not a parser.
    """
    model = open_checkpoints(checkpoint, options, placement)
    if model.predictor_settings().command != "parse":
        raise InputError(
            "the checkpoint does not parse: its predictor does not answer with trees",
            location=checkpoint,
            help="train a run such as parsing-craft",
        )
    return model


@command(
    PARSING,
    "weft evaluate-parser outputs/parsing-craft/averaged --test dev",
    "weft evaluate-parser outputs/parsing-craft/averaged --trees gold.trees --prm new.prm",
    note=OF_THE_RUN,
    memory="give a smaller --beam",
)
def evaluate_parser(
    checkpoint: Checkpoint,
    *,
    test: Test = None,
    data_root: DataRoot = None,
    trees: Annotated[
        str | None, file_option("--trees", "Gold trees to use instead of a test set.")
    ] = None,
    prm: Prm = None,
    per_sentence: Annotated[
        bool, typer.Option("--each", help="Also print EVALB's row for every sentence.")
    ] = False,
    out: Annotated[str | None, out_option("Also write the parses to this file.")] = None,
    json_: Json = False,
    of_trees: OfTrees,
    search: Search,
    placement: Place,
) -> None:
    """Print EVALB's report of a parser on its run's test sets, and the number of repairs.

    Raises:
        InputError: the checkpoint is not a parser, or a file cannot be read or written.
    """
    if per_sentence and json_:
        raise wrong("--each", "it has no effect with --json")
    from .evaluation import evaluated, gold_trees, report_text

    model = _open_parser(checkpoint, {**of_trees, **search}, placement)
    banks = gold_trees(model, trees, test, data_root)
    one_file(out, banks)
    settings = _evalb_settings(prm)
    reports = []
    for name, gold in banks.items():
        measured = evaluated(model, name, gold, settings)
        if out:
            lines = ("\n" if parse is None else f"{parse.tree}\n" for parse in measured.parses)
            write_beside(Path(out), "".join(lines).encode(), "file")
        used = model.predictor_settings().model_dump(mode="json")
        reports.append({"test": name, "predictor": used, **measured.as_json()})
        if not json_:
            print(report_text(name, measured, every=per_sentence))
    if json_:
        print(json.dumps(reports, indent=2))


def record(parsed: Parse | None) -> dict[str, Any]:
    """Return a parse as plain data; the tree of a line without words is null."""
    if parsed is None:
        return {"tree": None}
    return {
        "tree": str(parsed.tree),
        "words": [leaf.word for leaf in parsed.tree.leaves()],
        "tags": [leaf.tag for leaf in parsed.tree.leaves()],
        "score": parsed.score,
        "log_probability": parsed.log_probability,
        "finished": parsed.finished,
        "repaired": parsed.repairs.any,
        "repairs": parsed.repairs.total,
    }


class _Pictures:
    """Draws trees into a folder or a file, or not at all."""

    def __init__(self, path: str | None) -> None:
        """Set the folder, created if missing, or the file, whose suffix is checked."""
        from ...graphs.draw.render import SUFFIXES
        from ...plugin import check_suffix

        self.path = None if path is None else Path(path)
        self.is_file = self.path is not None and self.path.suffix != ""
        self.done = False
        if self.path is None:
            return
        if self.is_file:
            check_suffix(self.path, SUFFIXES)
        else:
            self.path.mkdir(parents=True, exist_ok=True)

    def draw(self, number: int, tree: Tree | None) -> None:
        """Draw tree 17 into 000017.svg in the folder; into a file, draw the first tree only."""
        if self.path is None or tree is None or (self.is_file and self.done):
            return
        from .trees.draw import draw_tree

        out = self.path if self.is_file else self.path / f"{number:06d}.svg"
        draw_tree(tree, out)
        self.done = True


@command(
    PARSING,
    "weft trees dev.trees.gz --clean --form vinyals -o dev.symbols",
    "weft trees dev.trees.gz --draw first.svg",
)
def trees(
    files: Annotated[
        list[str],
        argument("FILE...", "Bracketed trees, plain text or compressed.", complete_files),
    ],
    *,
    cleaned: Annotated[
        bool,
        typer.Option(
            "--clean", help="Remove traces and function tags, and add a TOP node to each tree."
        ),
    ] = False,
    form: Annotated[
        Form | None,
        option(
            "--form",
            "Write the trees in this form: bracketed on one line or on several, their words "
            "only, as the treebank writes them and `weft parse` reads them, or linearized as "
            "symbols. [default: print counts; with -o, line]",
        ),
    ] = None,
    out: Annotated[str | None, out_option("File to write. [default: standard output]")] = None,
    draw: Annotated[
        str | None,
        option(
            "--draw",
            "Draw the trees into a folder, as 000001.svg, or the first one into a file that ends "
            "in .svg, .png, .pdf or .dot.",
            metavar="PATH",
        ),
    ] = None,
) -> int:
    """Count, clean, convert or draw the trees of a treebank; exit with 1 if any are malformed.

    Raises:
        InputError: a file cannot be read or written, or there is no tree to draw.
    """
    from .trees.clean import clean, statistics
    from .trees.trees import Malformed, read_all

    drawn: list[Tree] = []
    bad = 0
    for name in files:
        for tree in read_all("\n".join(read_lines(name))):
            if isinstance(tree, Malformed):
                bad += 1
                print(f"{name}: {tree}: {tree.text}", file=sys.stderr)
            elif cleaned:
                drawn += filter(None, [clean(tree)])
            else:
                drawn.append(tree)
    if draw is not None:
        _draw(drawn, draw)
    if out is not None:
        write = _writer(form or "line")
        text = "".join(write(tree) + "\n" for tree in drawn)
        write_beside(Path(out), text.encode(), "file")
        print(f"{len(drawn):,} trees written to {out}")
    elif form is None and draw is None:
        print(statistics(drawn).render())
    elif form is not None:
        write = _writer(form)
        for tree in drawn:
            sys.stdout.write(write(tree) + "\n")
    if bad:
        terminal.notice(f"{bad} malformed trees skipped")
    return 1 if bad else 0


def _draw(trees_: list[Tree], draw: str) -> None:
    """Draw trees into a folder, or the first one into a file.

    Raises:
        InputError: there is no tree, or a file cannot be written.
    """
    if not trees_:
        raise InputError("there is no tree to draw", location="--draw")
    pictures = _Pictures(draw)
    for number, tree in enumerate(trees_, 1):
        pictures.draw(number, tree)


def _writer(form: Form) -> Callable[[Tree], str]:
    """Return the function that writes a tree in a form."""
    from .trees.linearization import LINEARIZATIONS
    from .trees.trees import pretty

    if form == "line":
        return str
    if form == "pretty":
        return pretty
    if form == "words":
        return lambda tree: " ".join(leaf.word for leaf in tree.leaves())
    linearization = LINEARIZATIONS[form]
    return lambda tree: " ".join(linearization.write(tree))


@command(PARSING, "weft score-trees gold.trees parsed.trees --prm COLLINS.prm")
def score_trees(
    gold: Annotated[
        str,
        argument("GOLD", "Gold trees, one per line.", complete_files),
    ],
    test: Annotated[
        str,
        argument(
            "PARSES", "Parses in the same order; an empty line means no parse.", complete_files
        ),
    ],
    *,
    prm: Prm = None,
    out: Annotated[str | None, out_option("File to write. [default: standard output]")] = None,
    json_: Json = False,
) -> None:
    """Score parses against gold trees as EVALB does.

    Raises:
        InputError: a file cannot be read, a gold tree is malformed, or the files differ in length.
    """
    from .metrics.evalb import score as score_parses
    from .metrics.evalb_report import report
    from .trees.trees import read_line

    settings = _evalb_settings(prm)
    trees, parses = list(read_lines(gold)), list(read_lines(test))
    for number, line in enumerate(trees, 1):
        try:
            read_line(line)
        except ValueError as error:
            raise InputError(
                f"gold is malformed: {error}",
                location=f"{gold}:{number}",
                help="put one tree on each line: weft trees FILE --form line -o LINES",
            ) from None
    if len(trees) != len(parses):
        raise InputError(
            f"{len(parses):,} parses for {len(trees):,} gold trees",
            location=test,
            help="write one line for each gold tree; leave it empty where there is no parse",
        )
    scores = score_parses(trees, parses, settings)
    text = json.dumps(_as_json(scores), indent=1) + "\n" if json_ else report(scores)
    if out is not None:
        write_beside(Path(out), text.encode(), "file")
        total = scores.all
        print(f"F1 {total.f1:.2f}, {total.errors} errors; written to {out}")
        return
    sys.stdout.write(text)
    for sentence in scores.sentences:
        if sentence.status == "error":
            terminal.warn(sentence.number, str(sentence.problem))


def _evalb_settings(prm: str | None) -> EvalbSettings:
    """Return the settings of a parameter file; without one, those of COLLINS.prm.

    Raises:
        InputError: the file cannot be read, or a line is wrong.
    """
    from .metrics.evalb import COLLINS, read_settings

    return COLLINS if prm is None else read_settings("\n".join(read_lines(prm)), prm)


def _as_json(scores: EvalbScores) -> dict[str, object]:
    return {
        "all": scores.all.as_json(),
        f"length<={scores.cutoff}": scores.short.as_json(),
        "errors": [
            {"line": sentence.number, "problem": sentence.problem}
            for sentence in scores.sentences
            if sentence.status == "error"
        ],
    }
