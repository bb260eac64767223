"""Tree options: of the commands about trees, and of `weft evaluate`; no torch."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Callable

from .search import add_compile_option, add_search_options

Add = Callable[[str, str, str, str], ArgumentParser]


def add_evaluate_options(evaluate: ArgumentParser) -> None:
    """Add what is measured, and how."""
    evaluate.add_argument("--source", help="text to translate, plain or gzip")
    evaluate.add_argument("--target", help="its reference translation")
    evaluate.add_argument("--test", help="a test set of the run instead (default: all of them)")
    evaluate.add_argument("--data-root", help="folder of the run's data (default: the run's)")
    evaluate.add_argument("-o", "--out", help="file for the translations, or parses")
    evaluate.add_argument("--json", action="store_true", help="print JSON")
    trees = evaluate.add_argument_group("parsers")
    trees.add_argument("--trees", metavar="FILE", help="gold trees, instead of a test set")
    trees.add_argument("--prm", metavar="FILE", help="settings of EVALB (default: Collins's)")
    trees.add_argument(
        "--each", action="store_true", help="print EVALB's row of every sentence too"
    )
    _add_constraint(trees)


def _add_constraint(group: object) -> None:
    group.add_argument(  # type: ignore[attr-defined]
        "--constrained",
        action=BooleanOptionalAction,
        default=None,
        help="write nothing but trees over exactly the words (default: as the run says, yes)",
    )


def add_tree_commands(add: Add) -> None:
    """Add the commands about trees."""
    trees = add(
        "trees",
        "decode.trees",
        "count, clean or rewrite the trees of a treebank",
        "weft trees dev.trees.gz --clean --form vinyals -o dev.symbols",
    )
    trees.add_argument("files", nargs="+", metavar="file", help="bracketed trees, plain or gzip")
    trees.add_argument(
        "--clean",
        action="store_true",
        help="take out traces and function tags, and put TOP around each",
    )
    trees.add_argument(
        "--form",
        choices=("line", "pretty", "words", "vinyals", "tensor2tensor", "top_down"),
        help="print the trees: as brackets on one line or many, their words, or as symbols "
        "(default: print counts; with -o, line)",
    )
    trees.add_argument("-o", "--out", help="file to write (default: print)")
    score = add(
        "score-trees",
        "decode.trees",
        "score parses against gold trees as EVALB does",
        "weft score-trees gold.trees parsed.trees --prm COLLINS.prm",
    )
    score.set_defaults(function="score_trees")
    score.add_argument("gold", help="gold trees, one a line")
    score.add_argument("test", help="parses in the same order, an empty line where there is none")
    score.add_argument("--prm", help="settings of EVALB (default: those of Collins)")
    score.add_argument("--json", action="store_true", help="print JSON")
    score.add_argument("-o", "--out", help="file to write (default: print)")
    _add_parse(add)


def _add_parse(add: Add) -> None:
    parse = add(
        "parse",
        "decode.parse",
        "parse lines from stdin, tree by tree, to stdout",
        "weft parse outputs/parsing-craft/averaged --raw --draw trees/ < in.txt > out.trees",
    )
    parse.add_argument("checkpoint", help="a checkpoint folder of a run with the task 'parsing'")
    parse.add_argument(
        "--raw",
        action="store_true",
        help="lines are plain text, a sentence each, to be cut into words as treebanks have them "
        "(default: words parted by spaces)",
    )
    form = parse.add_mutually_exclusive_group()
    form.add_argument("--pretty", action="store_true", help="print each tree over several lines")
    form.add_argument(
        "--json", action="store_true", help="print JSON lines: tree, tags, score, repairs"
    )
    parse.add_argument(
        "--draw",
        metavar="PATH",
        help="draw the trees: into a folder, one SVG a line, or the first into a file "
        "(.svg .png .pdf .dot)",
    )
    _add_constraint(parse)
    parse.add_argument(
        "--buffer",
        type=int,
        default=1000,
        help="lines to read ahead; 1 answers each at once (default: %(default)s)",
    )
    add_search_options(parse)
    add_compile_option(parse)
