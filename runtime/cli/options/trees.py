"""Options of `weft trees`, `weft score-trees`, `weft parse` and `weft evaluate`; no torch."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Callable

from .search import add_compile_option, add_search_options

Add = Callable[[str, str, str, str], ArgumentParser]


def add_evaluate_options(evaluate: ArgumentParser) -> None:
    """Add the options of `weft evaluate`."""
    evaluate.add_argument("--source", help="file of lines to translate, plain text or gzip")
    evaluate.add_argument("--target", help="file with their reference translations")
    evaluate.add_argument(
        "--test", help="name of one of the run's test sets (default: all of them)"
    )
    evaluate.add_argument(
        "--data-root", help="folder with the test data (default: data.root of the run)"
    )
    evaluate.add_argument("-o", "--out", help="also write the translations or parses to this file")
    evaluate.add_argument("--json", action="store_true", help="print JSON")
    trees = evaluate.add_argument_group("parsers")
    trees.add_argument(
        "--trees", metavar="FILE", help="file of gold trees to use instead of a test set"
    )
    trees.add_argument(
        "--prm", metavar="FILE", help="EVALB parameter file (default: COLLINS.prm's settings)"
    )
    trees.add_argument(
        "--each", action="store_true", help="also print EVALB's row for every sentence"
    )
    _add_constraint(trees)


def _add_constraint(group: object) -> None:
    group.add_argument(  # type: ignore[attr-defined]
        "--constrained",
        action=BooleanOptionalAction,
        default=None,
        help="constrain the output to trees over exactly the input words (default: as the run "
        "sets it; yes unless it says otherwise)",
    )


def add_tree_commands(add: Add) -> None:
    """Add `trees`, `score-trees` and `parse`."""
    trees = add(
        "trees",
        "decode.trees",
        "count, clean or convert the trees of a treebank",
        "weft trees dev.trees.gz --clean --form vinyals -o dev.symbols",
    )
    trees.add_argument(
        "files", nargs="+", metavar="file", help="file of bracketed trees, plain text or gzip"
    )
    trees.add_argument(
        "--clean",
        action="store_true",
        help="remove traces and function tags, and add a TOP node to each tree",
    )
    trees.add_argument(
        "--form",
        choices=("line", "pretty", "words", "vinyals", "tensor2tensor", "top_down"),
        help="print the trees in this form: bracketed on one line or on several, their words "
        "only, or linearized as symbols (default: print counts; with -o, line)",
    )
    trees.add_argument("-o", "--out", help="file to write (default: print)")
    score = add(
        "score-trees",
        "decode.trees",
        "score parses against gold trees as EVALB does",
        "weft score-trees gold.trees parsed.trees --prm COLLINS.prm",
    )
    score.set_defaults(function="score_trees")
    score.add_argument("gold", help="file of gold trees, one per line")
    score.add_argument(
        "test", help="file of parses in the same order; an empty line means no parse"
    )
    score.add_argument("--prm", help="EVALB parameter file (default: COLLINS.prm's settings)")
    score.add_argument("--json", action="store_true", help="print JSON")
    score.add_argument("-o", "--out", help="file to write (default: print)")
    _add_parse(add)


def _add_parse(add: Add) -> None:
    parse = add(
        "parse",
        "decode.parse",
        "parse sentences from stdin, one per line, and write trees to stdout",
        "weft parse outputs/parsing-craft/averaged --raw --draw trees/ < in.txt > out.trees",
    )
    parse.add_argument("checkpoint", help="a checkpoint folder of a run with the task 'parsing'")
    parse.add_argument(
        "--raw",
        action="store_true",
        help="input lines are plain text, one sentence each; split them into words as treebanks "
        "do (default: words are separated by spaces)",
    )
    form = parse.add_mutually_exclusive_group()
    form.add_argument("--pretty", action="store_true", help="print each tree on several lines")
    form.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line: tree, tags, score, repairs",
    )
    parse.add_argument(
        "--draw",
        metavar="PATH",
        help="draw the trees: one SVG per line into a folder, or the first tree into a file "
        "(.svg .png .pdf .dot)",
    )
    _add_constraint(parse)
    parse.add_argument(
        "--buffer",
        type=int,
        default=1000,
        help="number of lines to read ahead; 1 answers each line immediately (default: "
        "%(default)s)",
    )
    add_search_options(parse)
    add_compile_option(parse)
