"""EVALB and the metrics of trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from weft.extensions.parsing.decode.parse import Parse
from weft.extensions.parsing.decode.tree_repair import Repairs
from weft.extensions.parsing.metrics.evalb import COLLINS, EvalbSettings, read_settings, score
from weft.extensions.parsing.metrics.evalb_report import report
from weft.extensions.parsing.metrics.metric import measured
from weft.extensions.parsing.trees.trees import Leaf, Tree
from weft.specs.findings import InputError

GOLD = "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ runs) (ADVP (RB fast))) (. .)))"


def one(gold: str, test: str, settings: EvalbSettings = COLLINS):  # noqa: ANN201 - a row
    """Return the score of one sentence."""
    return score([gold], [test], settings).sentences[0]


def test_a_perfect_parse() -> None:
    """S, NP, VP and ADVP; the full stop and TOP are dropped."""
    row = one(GOLD, GOLD)

    assert (row.matched, row.gold, row.test, row.crossing) == (4, 4, 4, 0)
    assert (row.length, row.words, row.tags, row.complete) == (5, 4, 4, True)


def test_a_crossing_bracket_by_hand() -> None:
    """(the) (dog runs) fast: the new bracket crosses NP and VP, and counts once."""
    row = one(GOLD, "(S (DT the) (X (NN dog) (VBZ runs)) (PRT (RB fast)) (. .))")

    assert (row.matched, row.gold, row.test, row.crossing) == (2, 4, 3, 1)


def test_equal_labels_are_equal_both_ways() -> None:
    """ADVP for PRT, and PRT for ADVP."""
    other = GOLD.replace("ADVP", "PRT")

    assert one(GOLD, other).complete
    assert one(other, GOLD).complete


def test_brackets_are_a_multiset() -> None:
    """If gold has a label twice over one span and the parse once, it matches once."""
    double = "(S (NP (NP (NN dog))) (VP (VBZ runs)))"
    single = "(S (NP (NN dog)) (VP (VBZ runs)))"

    assert (one(double, single).matched, one(double, single).gold) == (3, 4)
    assert (one(single, double).matched, one(single, double).test) == (3, 4)


def test_labels_are_cut_and_traces_vanish() -> None:
    """Function tags do not count, and neither do brackets over traces only."""
    gold = "(S (NP-SBJ-1 (-NONE- *)) (NP=2 (NN dog)) (VP (VBZ runs)))"

    assert one(gold, "(S (NP (NN dog)) (VP-X (VBZ runs)))").complete
    assert one(gold, gold).length == 2


def test_a_tag_that_is_deleted_on_one_side_is_an_error() -> None:
    """Punctuation tagged XX is kept, so the lengths differ."""
    row = one(GOLD, GOLD.replace("(. .)", "(XX .)"))

    assert (row.status, row.gold, row.problem) == ("error", 0, "5 words instead of 4")


def test_quotes_are_restored_where_settings_say_so() -> None:
    """A quotation mark that one side tags as a possessive counts on both sides."""
    gold, test = "(S (NP (NNS dogs)) ('' '))", "(S (NP (NNS dogs) (POS ')))"
    quotes = EvalbSettings(quote_label=frozenset({"''", "POS"}))

    assert one(gold, test).status == "error"
    row = one(gold, test, quotes)
    assert (row.status, row.words, row.tags, row.gold, row.matched) == ("valid", 2, 1, 2, 1)


QUOTES = read_settings(
    "DELETE_LABEL TOP\nDELETE_LABEL -NONE-\nDELETE_LABEL ''\nDELETE_LABEL :\n"
    "QUOTE_LABEL ''\nQUOTE_LABEL POS\nQUOTE_LABEL NN\n",
    "quotes.prm",
)


@pytest.mark.parametrize(
    ("gold", "test", "row"),
    [
        # The trace of gold makes its leaves as many as those of a parse with one word less.
        (
            "(S (NP (-NONE- *)) (NP (NNS dogs)) ('' '))",
            "(S (NP (NNS dogs) (POS ')))",
            ("valid", 1, 2, 2, 2, 1),
        ),
        # Two marks of the parse restore the one of gold twice.
        (
            "(S (NP (NNS dogs)) ('' '))",
            "(S (NP (NNS dogs) (NN ') (POS ')))",
            ("valid", 1, 2, 2, 3, 1),
        ),
        # As many words on both sides: nothing is restored, and 'dogs' stands against a mark.
        (
            "(S ('' ') (NNS dogs) (POS '))",
            "(S (POS ') (NNS dogs) ('' '))",
            ("error", 0, 0, 0, 0, 0),
        ),
        # Only ', \" and / are quotation marks, whatever their tag.
        ("(S (NNS dogs) ('' *))", "(S (NNS dogs) (POS *))", ("error", 0, 0, 0, 0, 0)),
        # A colon is deleted, but not a quotation mark of these settings.
        ('(S (: ") (NN a))', '(S (NN ") (NN a))', ("error", 0, 0, 0, 0, 0)),
        # A parse without words is skipped, even if a mark could be restored.
        ("(S (POS '))", "(S ('' '))", ("skip", 0, 0, 0, 0, 0)),
    ],
)
def test_quotation_marks_by_hand(gold: str, test: str, row: tuple[object, ...]) -> None:
    """Status, matched brackets, brackets of gold and parse, words and tags, as the program's."""
    score_ = one(gold, test, QUOTES)

    assert row == (
        score_.status,
        score_.matched,
        score_.gold,
        score_.test,
        score_.words,
        score_.tags,
    )


@pytest.mark.parametrize(
    ("gold", "test", "matched"), [("B (A", "C (B", 3), ("B (A", "A (C", 2), ("A (A", "C (A", 2)]
)
def test_brackets_are_paired_in_order(gold: str, test: str, matched: int) -> None:
    """A = B and B = C, but A is not C: a bracket takes the first equal one that is left."""
    settings = EvalbSettings(frozenset(), eq_label=frozenset({("A", "B"), ("B", "C")}))

    assert one(f"(S ({gold} (X x))))", f"(S ({test} (X x))))", settings).matched == matched


def test_labels_are_deleted_once_cut_and_by_their_equals() -> None:
    """TOP-1 is deleted as TOP, ROOT as equal to it, and a constituent -NONE- is not."""
    settings = EvalbSettings(frozenset({"TOP", "-NONE-"}), eq_label=frozenset({("TOP", "ROOT")}))

    assert one("(TOP-1 (A (X x)))", "(ROOT (A (X x)))", settings).complete
    assert one("(A (-NONE- (X x)))", "(A (X x))", settings).gold == 2


@pytest.mark.parametrize(
    ("gold", "test", "status"),
    [
        ("(TOP)", "(A (X x))", "error"),
        ("", "", "skip"),
        ("(A (X x))", "(TOP)", "skip"),
        ("(A (X x))", "(A )", "error"),
        ("(A (X x))", "(TOP (B) (A (X x)))", "valid"),
    ],
)
def test_an_empty_bracket_is_a_constituent_without_words(gold: str, test: str, status: str) -> None:
    """With a space inside, it is an empty word; only a parse without words is skipped."""
    assert one(gold, test).status == status


def test_a_report_without_brackets() -> None:
    """The row of totals has the words alone, and 0 / 0 is not a number."""
    lines = report(score([GOLD], [""])).split("\n")

    assert lines[5] == "      0     0     0.00"
    assert lines.count("Bracketing FMeasure       =    nan") == 2


@pytest.mark.parametrize("bad", ["", "(. .)"])
def test_a_sentence_without_words_is_skipped(bad: str) -> None:
    """It adds nothing to any total."""
    scores = score([GOLD, GOLD], [GOLD, bad])

    assert scores.sentences[1].status == "skip"
    assert (scores.all.skipped, scores.all.valid, scores.all.recall) == (1, 1, 100.0)


def test_other_words_and_malformed_brackets_are_errors() -> None:
    """Neither is dropped silently."""
    scores = score([GOLD] * 3, [GOLD, GOLD.replace("dog", "cat"), GOLD[:-2]])

    assert [row.status for row in scores.sentences] == ["valid", "error", "error"]
    assert scores.sentences[1].problem == "'cat' instead of 'dog'"
    assert scores.all.errors == 2


def test_totals_are_sums_over_the_corpus() -> None:
    """Not means of sentences: 1 of 1 and 1 of 3 brackets are 2 of 4."""
    scores = score(
        ["(S (NN a))", "(S (NP (NN a)) (VP (VB b)))"], ["(S (NN a))", "(S (NN a) (VB b))"]
    )

    assert (scores.all.recall, scores.all.precision) == (50.0, 100.0)
    assert scores.all.f1 == pytest.approx(200 / 3)


def test_the_short_sentences_are_summed_once_more() -> None:
    """Sentences up to the cutoff length, including punctuation."""
    long = "(S " + "(NN a) " * 3 + ")"

    scores = score([long, GOLD], [long, GOLD], EvalbSettings(cutoff=3))

    assert (scores.all.sentences, scores.short.sentences) == (2, 1)


def test_settings_of_a_file() -> None:
    """Comments, sets, pairs and numbers; settings of the output are ignored."""
    text = (
        "# all\nDEBUG 0\nLABELED 0\nCUTOFF_LEN 10\nDELETE_LABEL TOP\nEQ_LABEL T TT\nEQ_WORD a A\n"
    )

    found = read_settings(text, "x.prm")

    assert found == EvalbSettings(
        delete_label=frozenset({"TOP"}),
        delete_label_for_length=frozenset(),
        eq_label=frozenset({("T", "TT")}),
        eq_word=frozenset({("a", "A")}),
        cutoff=10,
        labelled=False,
    )
    assert one("(A (B b))", "(C (B b))", found).complete


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("DELETE_LABLE TOP", "did you mean DELETE_LABEL"),
        ("EQ_LABEL A", "EQ_LABEL takes 2 values, not 1"),
        ("CUTOFF_LEN many", "'many' is not a valid value of CUTOFF_LEN"),
    ],
)
def test_a_wrong_setting_has_its_line(line: str, problem: str) -> None:
    """The error has the place and a fix."""
    with pytest.raises(InputError, match=problem) as caught:
        read_settings(f"# first\n{line}\n", "x.prm")

    assert "x.prm:2" in str(caught.value)


@pytest.mark.parametrize("name", ["COLLINS", "new", "sample"])
def test_the_programs_own_sample(name: str) -> None:
    """The 24 sample sentences give the recorded output, to the character."""
    folder = Path(os.environ.get("EVALB", "evalb"))
    if not (folder / "sample.gld").is_file():
        pytest.skip("set EVALB to a folder with sample.gld, sample.tst, *.prm and recorded output")

    def lines(file: str) -> list[str]:
        return (folder / file).read_text(encoding="utf-8").split("\n")[:-1]

    settings = read_settings((folder / f"{name}.prm").read_text(encoding="utf-8"), name)
    printed = (folder / f"out.sample.{name}.rsl").read_text(encoding="utf-8")

    assert report(score(lines("sample.gld"), lines("sample.tst"), settings)) == printed


def test_measures_by_hand() -> None:
    """Gold tags are on the leaves, the parser's own are counted separately; repairs are summed."""
    gold = Tree("TOP", (Tree("S", (Leaf("NN", "a"), Leaf("VB", "b"))),))
    flat = Tree("TOP", (Tree("NP", (Leaf("NN", "a"), Leaf("VB", "b"))),))
    parses = [
        Parse(gold, ("NN", "NN")),
        Parse(flat, ("NN", "VB"), finished=False, repairs=Repairs(words_added=2)),
        None,
    ]

    found = measured(parses, [gold, gold, gold])

    total = found.scores.all
    assert (total.matched, total.gold, total.test, total.skipped) == (1, 2, 2, 1)
    assert found.f1 == pytest.approx(50.0)
    assert (found.malformed, found.unfinished, found.repairs.total) == (1, 1, 2)
    assert found.as_json()["own_tagging_accuracy"] == pytest.approx(75.0)
