"""Trees: reading and writing of brackets, and errors for malformed ones."""

from __future__ import annotations

import pytest
from weft.extensions.parsing.trees.clean import bare, clean, statistics
from weft.extensions.parsing.trees.trees import (
    MAX_DEPTH,
    Leaf,
    Malformed,
    Tree,
    escaped,
    pretty,
    read_all,
    read_line,
    read_trees,
    unescaped,
)
from weft.specs.findings import InputError

NP = Tree("NP", (Leaf("DT", "the"), Leaf("NN", "dog")))
SENTENCE = Tree("TOP", (Tree("S", (NP, Tree("VP", (Leaf("VBZ", "runs"),)))),))


def test_a_tree_on_one_line() -> None:
    """Labels, tags and words are read from the brackets."""
    assert read_trees("(TOP (S (NP (DT the) (NN dog)) (VP (VBZ runs))))\n", "x") == [SENTENCE]


def test_trees_over_many_lines() -> None:
    """Only white space separates tokens."""
    text = "(TOP\n  (S (NP (DT the)\n\t(NN dog))\r\n  (VP (VBZ runs))))\n\n" + str(SENTENCE)

    assert read_trees(text, "x") == [SENTENCE, SENTENCE]


@pytest.mark.parametrize("width", [10, 30, 100])
def test_a_tree_written_over_lines_reads_back(width: int) -> None:
    """Pretty-printing changes only white space."""
    text = pretty(SENTENCE, width=width)

    assert read_trees(text, "x") == [SENTENCE]
    assert ("\n" in text) == (width < 100)


def test_an_outer_bracket_without_a_label() -> None:
    """The format of the Penn Treebank's own files."""
    assert read_trees("( (NP (DT the) (NN dog)))", "x") == [Tree("", (NP,))]


def test_a_word_may_hold_other_spaces() -> None:
    """A no-break space inside a token is part of it."""
    assert read_trees("(NP (NN Xpd\u00a0TTD))", "x") == [Tree("NP", (Leaf("NN", "Xpd\u00a0TTD"),))]


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("(NP (DT the)\n  (NN Xpd TTD))", 2, 3, "tag 'NN' has 2 words"),
        ("(NP (DT the) dog)", 1, 1, "'NP' has both the word 'dog' and brackets"),
        ("(NP ())", 1, 5, "bracket '()' is empty"),
        ("(NP (NN))", 1, 5, "bracket '(NN)' is empty"),
        ("(TOP (NP (NN dog))", 1, 1, "a bracket is never closed"),
        ("\n (NP (NN dog)))", 2, 15, "expected a tree, found ')'"),
        ("(NP ((NN a)) b)", 1, 1, "'NP' has both the word 'b' and brackets"),
        ("( ((NN a) b))", 1, 11, "the word 'b' has no tag"),
    ],
)
def test_a_malformed_tree_has_line_and_column(
    text: str, line: int, column: int, problem: str
) -> None:
    """Line and column count from 1 and point to the bracket or word."""
    bad = [one for one in read_all(text) if isinstance(one, Malformed)]

    assert (bad[0].line, bad[0].column, bad[0].problem) == (line, column, problem)


def test_reading_continues_after_a_malformed_tree() -> None:
    """A malformed line loses only one tree."""
    lines = [str(SENTENCE), "(NP (NN a b))", str(SENTENCE), "(NP (NN dog)", str(SENTENCE)]

    found = list(read_all("\n".join(lines)))

    assert [isinstance(one, Malformed) for one in found] == [False, True, False, True, False]


def test_a_tree_that_is_never_closed_loses_no_other_tree() -> None:
    """It takes in the trees after it up to the next mistake, and these are read again."""
    open_, good, two_words = "(S (NN dog)", "(S (NN cat))", "(S (NN a b))"
    for text, bad in (
        (f"{open_}\n{good}\n{good}\n{two_words}\n{good}", [0, 3]),
        (f"( {open_}\n( {good})\n( {good})\n({two_words})\n({good})", [0, 3]),
        (f"{open_}\n  (VP (VB runs))\n{good}\n{two_words}\n{good}", [0, 2]),
    ):
        found = list(read_all(text))
        assert [at for at, one in enumerate(found) if isinstance(one, Malformed)] == bad
        assert len(found) == bad[-1] + 2


def test_all_malformed_trees_are_reported() -> None:
    """The message has the count and the first three places."""
    with pytest.raises(InputError, match=r"5 of 6 trees are malformed: line 1, .*and 2 more"):
        read_trees("(NP (NN a b))\n" * 5 + str(SENTENCE), "x")


def test_very_deep_brackets_are_refused() -> None:
    """Deep nesting must not overflow the stack."""
    text = "(A " * (MAX_DEPTH + 1) + "(B b)" + ")" * (MAX_DEPTH + 1)

    (bad, *_) = read_all(text)

    assert isinstance(bad, Malformed)
    assert "deeper than 500" in bad.problem
    assert isinstance(next(read_all("(A " * 400 + "(B b)" + ")" * 400)), Tree)


def test_a_line_may_hold_several_brackets_or_none() -> None:
    """Outputs of parsers may be empty or have several brackets."""
    assert read_line("(DT the) (NP (NN dog))") == [
        Leaf("DT", "the"),
        Tree("NP", (Leaf("NN", "dog"),)),
    ]
    assert read_line("") == []
    with pytest.raises(ValueError, match="never closed"):
        read_line("(NP (NN dog)")


def test_words_as_in_text_and_as_in_treebanks() -> None:
    """Brackets and slashes are escaped in a treebank."""
    assert [unescaped(word) for word in ("-LRB-", r"1\/2", "dog")] == ["(", "1/2", "dog"]
    assert escaped("f(x)") == "f-LRB-x-RRB-"


def test_cleaning_by_hand() -> None:
    """Traces, empty constituents, function tags and indices are removed; TOP is added."""
    raw = "( (S (NP-SBJ-1 (-NONE- *PRO*)) (VP (VB Note) (NP=2 (-LRB- -LRB-) (NN it)))))"
    (tree,) = read_trees(raw, "x")

    assert str(clean(tree)) == "(TOP (S (VP (VB Note) (NP (-LRB- -LRB-) (NN it)))))"
    assert clean(Tree("S", (Leaf("-NONE-", "*"),))) is None
    assert str(clean(NP)) == "(TOP (NP (DT the) (NN dog)))"
    assert bare("-LRB-") == "-LRB-"


def test_statistics_by_hand() -> None:
    """Outer labels do not count as constituents."""
    unary = Tree("TOP", (Tree("S", (Tree("NP", (Leaf("NN", "dog"),)),)),))

    found = statistics([SENTENCE, unary])

    assert (found.trees, found.words, found.longest, found.deepest) == (2, 4, 3, 2)
    assert found.labels == {"S": 2, "NP": 2, "VP": 1}
    assert found.tags == {"DT": 1, "NN": 2, "VBZ": 1}
    assert found.unaries == 1
    assert "2 trees, 4 words" in found.render()
