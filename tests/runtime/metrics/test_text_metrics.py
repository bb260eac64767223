"""Metrics of texts against sacreBLEU and hand calculations."""

from __future__ import annotations

import pytest
import sacrebleu
from weft.runtime.metrics.edit_distance import edit_distance
from weft.runtime.metrics.metric import Metric, SumMetric
from weft.runtime.metrics.registry import METRICS
from weft.specs.findings import InputError

HYPOTHESES = ["the cat sat on the mat", "A dog barks loudly at night .", "no"]
REFERENCES = ["the cat is on the mat", "a dog barked at night .", "yes"]


def metric(value: object) -> Metric:
    """Return a metric from its JSON value."""
    return METRICS.parse(value, "run.json#/metrics/0")


@pytest.mark.parametrize(
    ("value", "theirs"),
    [
        ("bleu", sacrebleu.BLEU()),
        ("bleu_lc", sacrebleu.BLEU(lowercase=True)),
        ({"type": "bleu", "tokenize": "char"}, sacrebleu.BLEU(tokenize="char")),
        ("chrf", sacrebleu.CHRF()),
        ({"type": "chrf", "word_order": 2}, sacrebleu.CHRF(word_order=2)),
        ("ter", sacrebleu.TER()),
    ],
)
def test_scores_and_signatures_are_those_of_sacrebleu(value: object, theirs: object) -> None:
    """A published figure must be comparable with those of others."""
    found = metric(value).measure(HYPOTHESES, REFERENCES)

    wanted = theirs.corpus_score(HYPOTHESES, [REFERENCES]).score  # type: ignore[attr-defined]
    assert found.value == pytest.approx(wanted)
    assert found.signature == str(theirs.get_signature())  # type: ignore[attr-defined]


def test_ter_is_better_when_lower() -> None:
    """TER, WER and CER count errors; BLEU counts matches."""
    built_in = {*METRICS.names()} - {"comet"}  # it needs a model
    lower = {name for name in built_in if not metric(name).higher_is_better}

    assert lower == {"ter", "wer", "cer", "mse", "mae", "nll", "perplexity", "loss"}


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("kitten", "sitting", 3),
        ("", "abc", 3),
        ("abc", "", 3),
        ("abc", "abc", 0),
        ("intention", "execution", 5),
        ("ab", "ba", 2),
        ("aaaa", "bbbb", 4),
        ("abcdef", "bcdefa", 2),
    ],
)
def test_edit_distances_from_textbooks(one: str, other: str, distance: int) -> None:
    """Wagner & Fischer 1974; the distance is symmetric."""
    assert edit_distance(one, other) == edit_distance(other, one) == distance


def test_edit_distance_equals_the_recursive_definition() -> None:
    """All pairs of short words over two letters."""
    words = [""]
    for word in words:
        if len(word) < 4:
            words += [word + "a", word + "b"]

    def defined(one: str, other: str) -> int:
        if not one or not other:
            return len(one) + len(other)
        return min(
            defined(one[1:], other) + 1,
            defined(one, other[1:]) + 1,
            defined(one[1:], other[1:]) + (one[0] != other[0]),
        )

    assert all(edit_distance(a, b) == defined(a, b) for a in words for b in words)


def test_a_very_long_text_is_refused() -> None:
    """The time grows with the square of the length."""
    with pytest.raises(InputError, match="50,000"):
        edit_distance("a" * 50_001, "b")


def test_word_error_rate_is_total_errors_by_total_words() -> None:
    """1 + 2 errors in 3 + 2 words; the mean of the rates of the rows would be 66.7."""
    found = metric("wer").measure(["a b x", "c"], ["a b c", "d e"])

    assert found.value == pytest.approx(100 * 3 / 5)
    assert found.details == {"errors": 3, "length": 5}
    assert found.signature == "wer|case:mixed|punctuation:keep"


def test_character_error_rate_counts_a_space_as_one_character() -> None:
    """`ab` for `a b`: one deletion among three characters."""
    assert metric("cer").measure(["ab"], ["a  b "]).value == pytest.approx(100 / 3)


def test_normalization_removes_case_and_punctuation() -> None:
    """Both texts are `its a test` without case and punctuation."""
    plain = {"type": "wer", "lowercase": True, "punctuation": "remove"}

    assert metric("wer").measure(["It's a test!"], ["its a Test"]).value > 0
    assert metric(plain).measure(["It's a test!"], ["its a Test"]).value == 0


def test_composed_and_decomposed_letters_are_equal() -> None:
    """`e` with a combining accent is the letter `é`."""
    assert metric("cer").measure(["caf\u0065\u0301"], ["caf\u00e9"]).value == 0


def test_errors_without_any_reference_word_are_infinitely_many() -> None:
    """The rate is errors divided by zero."""
    assert metric("wer").measure(["a"], [""]).value == float("inf")
    assert metric("wer").measure([""], [""]).value == 0


def test_exact_match_ignores_outer_white_space() -> None:
    """Two of three texts are equal; a third differs only in case."""
    texts = [" a", "B", "c"], ["a ", "b", "c"]

    assert metric("exact_match").measure(*texts).value == pytest.approx(200 / 3)
    assert metric({"type": "exact_match", "lowercase": True}).measure(*texts).value == 100


def test_different_numbers_of_rows_are_refused() -> None:
    """Neither side may be cut off silently."""
    for name in ("bleu", "wer", "accuracy", "f1"):
        with pytest.raises(InputError, match="1 predictions for 2 references"):
            metric(name).measure(["a"], ["a", "b"])
        with pytest.raises(InputError, match="nothing to measure"):
            metric(name).measure([], [])


def test_a_value_of_another_type_is_refused() -> None:
    """BLEU of numbers has no meaning."""
    with pytest.raises(InputError, match=r"the value of 'row 2' is 1\.5, not a text"):
        metric("bleu").measure(["a", 1.5], ["a", "b"])


def test_statistics_sum_up_to_the_value() -> None:
    """Confidence intervals depend on it."""
    for name in ("wer", "cer", "exact_match"):
        one = metric(name)
        assert isinstance(one, SumMetric)
        total = one.statistics(HYPOTHESES, REFERENCES).sum(0)
        assert one.value_of(total) == one.measure(HYPOTHESES, REFERENCES).value
