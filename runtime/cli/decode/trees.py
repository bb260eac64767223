"""The commands `weft trees` and `weft score-trees`; no torch."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

from ....specs.files import write_beside
from ....specs.findings import InputError
from ...data.text_files import read_lines
from ...data.treebank.clean import clean, statistics
from ...data.treebank.linearization import LINEARIZATIONS
from ...data.treebank.trees import Malformed, Tree, plain, pretty, read_all, read_line
from ...metrics.evalb import COLLINS, Scores, read_settings, score
from ...metrics.evalb_report import report

FORMS: Mapping[str, Callable[[Tree], str]] = {
    "line": str,
    "pretty": pretty,
    "words": lambda tree: " ".join(plain(leaf.word) for leaf in tree.leaves()),
    **{
        name: lambda tree, form=form: " ".join(form.write(tree))  # type: ignore[misc]
        for name, form in LINEARIZATIONS.items()
    },
}
"""Form of `weft trees --form` to the function that writes a tree in it."""


def trees(options: Namespace) -> int:
    """Print statistics of treebanks, or convert their trees; return 1 if any are malformed."""
    found: list[Tree] = []
    bad = 0
    for file in options.files:
        for tree in read_all("\n".join(read_lines(file))):
            if isinstance(tree, Malformed):
                bad += 1
                print(f"{file}: {tree}: {tree.text}", file=sys.stderr)
            elif options.clean:
                found += filter(None, [clean(tree)])
            else:
                found.append(tree)
    if options.out is not None:
        form = FORMS[options.form or "line"]
        text = "".join(form(tree) + "\n" for tree in found)
        write_beside(Path(options.out), text.encode(), "file")
        print(f"{len(found):,} trees written to {options.out}")
    elif options.form is None:
        print(statistics(found).render())
    else:
        for tree in found:
            sys.stdout.write(FORMS[options.form](tree) + "\n")
    if bad:
        print(f"{bad} malformed trees skipped", file=sys.stderr)
    return 1 if bad else 0


def score_trees(options: Namespace) -> None:
    """Print EVALB's scores of parses against gold trees.

    Raises:
        InputError: a file cannot be read, a gold tree is malformed, or the files differ in length.
    """
    settings = COLLINS
    if options.prm is not None:
        settings = read_settings("\n".join(read_lines(options.prm)), options.prm)
    gold, test = list(read_lines(options.gold)), list(read_lines(options.test))
    for number, line in enumerate(gold, 1):
        try:
            read_line(line)
        except ValueError as error:
            raise InputError(
                f"gold is malformed: {error}",
                place=f"{options.gold}:{number}",
                help="put one tree on each line: weft trees FILE --form line -o LINES",
            ) from None
    if len(gold) != len(test):
        raise InputError(
            f"{len(test):,} parses for {len(gold):,} gold trees",
            place=options.test,
            help="write one line for each gold tree; leave it empty where there is no parse",
        )
    scores = score(gold, test, settings)
    text = json.dumps(_as_json(scores), indent=1) + "\n" if options.json else report(scores)
    if options.out is not None:
        write_beside(Path(options.out), text.encode(), "file")
        total = scores.all
        print(f"F1 {total.f1:.2f}, {total.errors} errors; written to {options.out}")
        return
    sys.stdout.write(text)
    for one in scores.sentences:
        if one.status == "error":
            print(f"warning: line {one.number}: {one.problem}", file=sys.stderr)


def _as_json(scores: Scores) -> dict[str, object]:
    return {
        "all": scores.all.as_json(),
        f"length<={scores.cutoff}": scores.short.as_json(),
        "errors": [
            {"line": one.number, "problem": one.problem}
            for one in scores.sentences
            if one.status == "error"
        ],
    }
