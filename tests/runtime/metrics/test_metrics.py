"""Metrics of texts and labels, and those of plug-ins."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest
import sacrebleu
from pydantic import BaseModel
from weft.extensions.parsing.decode.tree_repair import Repairs
from weft.extensions.parsing.trees.trees import Tree, read_trees
from weft.runtime.cli.common.terminal import Reporter
from weft.runtime.metrics.bootstrap import bootstrap_interval
from weft.runtime.metrics.digits import aligned, significant
from weft.runtime.metrics.edit_distance import edit_distance
from weft.runtime.metrics.metric import LossMetric, Metric, SumMetric
from weft.runtime.metrics.registry import METRICS, SHIPPED
from weft.runtime.system.plugins import Plugins, Selected
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (6.2146, "6.21"),
        (0.0123456, "0.0123"),
        (0.000412, "0.000412"),
        (45.678, "45.7"),
        (999.96, "1,000"),
        (12345.6, "12,346"),
        (2.0, "2.00"),
        (0.0, "0.00"),
        (-0.5, "-0.500"),
        (float("nan"), "nan"),
    ],
)
def test_a_loss_has_three_significant_digits(value: float, text: str) -> None:
    """Three decimals would show 0.000 for a small mean squared error."""
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(31.42, "+31.4200"), (0.00001234, "+1.23e-05"), (-0.001, "-0.00100"), (0.0, "+0.0000")],
)
def test_a_column_has_more_decimals_for_small_values(value: float, text: str) -> None:
    """A score of 1.23e-05 is not 0.0000, and a difference keeps its sign."""
    assert aligned(value, 4, sign=True) == text


def test_a_validation_prints_small_losses(capsys: pytest.CaptureFixture[str]) -> None:
    """BLEU keeps its two decimals, as published scores have."""
    Reporter().validated(20, {"loss": 0.00041236, "bleu": 0.5})

    out = capsys.readouterr()
    assert "update 20: valid loss 0.000412  BLEU 0.50" in out.out + out.err


def of_losses(value: object, losses: dict[str, float]) -> float:
    """Return the value of a metric of losses."""
    found = metric(value)
    assert isinstance(found, LossMetric)
    return found.measure_losses(losses).value


PREDICTED = ["a", "a", "b", "c", "a"]
RIGHT = ["a", "b", "b", "b", "a"]


def test_accuracy_is_the_share_of_right_classes() -> None:
    """Places 1, 3 and 5 of 5."""
    found = metric("accuracy").measure(PREDICTED, RIGHT)

    assert found.value == 60
    assert found.details == {"right": 3, "examples": 5}


def test_macro_f1_is_the_mean_over_the_classes_of_either_side() -> None:
    """a: 2*2/(3+2); b: 2*1/(1+3); c, which is never right: 0."""
    found = metric("f1").measure(PREDICTED, RIGHT)

    assert found.value == pytest.approx(100 * (0.8 + 0.5 + 0) / 3)
    assert found.details["classes"]["b"] == {
        "precision": 100,
        "recall": pytest.approx(100 / 3),
        "f1": pytest.approx(50),
        "examples": 3,
    }


def test_micro_f1_of_all_classes_is_accuracy() -> None:
    """Each wrong example is one false positive and one false negative."""
    assert metric({"type": "f1", "average": "micro"}).measure(PREDICTED, RIGHT).value == 60


def test_micro_f1_may_ignore_the_class_of_other_words() -> None:
    """Tags X: one right, two predicted, two wanted; the O are not counted."""
    one = metric({"type": "f1", "average": "micro", "ignore": ["O"]})
    tags = [["O", "X", "O"], ["X"]], [["O", "X", "X"], ["O"]]

    assert one.measure(*tags).value == pytest.approx(100 * 2 * 1 / (2 + 2))
    assert one.measure(*tags).signature == "f1|average:micro|ignore:O"
    assert one.name == "f1_micro"


def test_tag_accuracy_counts_words_not_sentences() -> None:
    """3 of 4 words, and 1 of 2 sentences."""
    found = metric("tag_accuracy").measure([["N", "V", "N"], ["V"]], [["N", "V", "V"], ["V"]])

    assert found.value == 75
    assert found.details == {"right": 3, "words": 4, "sequences": 50}


@pytest.mark.parametrize(
    ("kind", "predictions", "references", "value"),
    [
        ("accuracy", ["1", "2", "True"], [1, 1, True], 200 / 3),
        ("accuracy", ["a"], [" a "], 100),
        ("tag_accuracy", [["1", "2"]], ["1 1"], 50),
        ("tag_accuracy", [["1", "2"]], [[1, 1]], 50),
        ("f1", ["1", "2"], [1, 2], 100),
        ("mse", [1.0, 4.0], ["1.0", 2], 2),
        ("exact_match", ["1", "2"], [1, 1], 50),
        ("exact_match", [["N", "V"]], ["N  V"], 100),
        ("exact_match", [0.5], ["0.5"], 100),
    ],
)
def test_answers_are_compared_with_what_the_column_stores(
    kind: str, predictions: list[object], references: list[object], value: float
) -> None:
    """Data may have numbers, truth values and spaces where answers have names of classes."""
    assert metric(kind).measure(predictions, references).value == pytest.approx(value)


def test_answers_of_a_model_that_diverged_are_measured() -> None:
    """NaN is worse than any value; an error would end the training."""
    assert math.isnan(metric("mse").measure([math.nan], [1]).value)


def test_another_number_of_tags_is_refused() -> None:
    """Tags belong to words."""
    with pytest.raises(InputError, match="row 1 has 1 predicted tags for 2 words"):
        metric("tag_accuracy").measure([["N"]], [["N", "V"]])


def test_errors_of_numbers() -> None:
    """Differences 1 and -3."""
    numbers = [2.0, 1], [1.0, 4]

    assert metric("mse").measure(*numbers).value == (1 + 9) / 2
    assert metric("mae").measure(*numbers).value == (1 + 3) / 2


def trees(*lines: str) -> list[Tree]:
    """Read one tree from each line."""
    return [tree for line in lines for tree in read_trees(line, "test")]


GOLD = "(TOP (S (NP (D the) (N cat)) (VP (V sat))))"
FLAT = "(TOP (S (D the) (N cat) (VP (V sat))))"


def test_evalb_scores_trees_and_missing_parses() -> None:
    """The parse lacks one of three brackets; a missing one is skipped, as by EVALB."""
    gold = trees(GOLD, GOLD)
    found = metric("evalb").measure([*trees(FLAT), None], gold)

    precision, recall = 1, 2 / 3
    assert found.value == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert found.details["all"]["skipped"] == 1
    assert found.details["malformed"] == 0


def test_evalb_counts_repairs_and_own_tags_of_parses() -> None:
    """A parse with one repair and one of three tags wrong."""
    parse = SimpleNamespace(
        tree=trees(GOLD)[0], tags=("D", "N", "N"), finished=False, repairs=Repairs(words_added=1)
    )
    found = metric("evalb").measure([parse], trees(GOLD))

    assert found.value == 100
    assert found.details["own_tagging_accuracy"] == pytest.approx(200 / 3)
    assert {key: found.details[key] for key in ("malformed", "unfinished", "repairs")} == {
        "malformed": 1,
        "unfinished": 1,
        "repairs": 1,
    }


def test_evalb_refuses_values_that_are_not_trees() -> None:
    """Such as the texts of another column."""
    with pytest.raises(InputError, match="row 1 is str, not a tree"):
        metric("evalb").measure(["(S x)"], trees(GOLD))


def test_metrics_of_losses_read_means_by_name() -> None:
    """Perplexity is the exponential of nll."""
    losses = {"loss": 3.0, "nll": 2.0, "lm": 1.5}

    assert of_losses("nll", losses) == 2
    assert of_losses("perplexity", losses) == pytest.approx(math.e**2)
    assert of_losses("perplexity:lm", losses) == pytest.approx(math.e**1.5)
    assert of_losses("loss", losses) == 3
    assert of_losses("loss:lm", losses) == 1.5
    assert metric("loss:lm").name == "loss:lm"
    with pytest.raises(InputError, match="no loss or score 'ml'"):
        of_losses("loss:ml", losses)


def test_a_column_may_be_part_of_the_name() -> None:
    """Two metrics of one type differ in reports."""
    assert metric("accuracy:topic").column == "topic"
    assert metric({"type": "accuracy", "column": "topic"}).name == "accuracy:topic"


def test_an_interval_of_a_mean_is_close_to_that_of_the_normal_distribution() -> None:
    """1.96 standard errors to each side; the quantiles of 4,000 samples are accurate to 5 %."""
    generator = np.random.default_rng(3)
    values = generator.normal(10, 2, size=400)
    statistics = np.stack((values, np.ones(400)), 1)

    low, high = bootstrap_interval(statistics, lambda total: total[0] / total[1], samples=4000)

    error = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - error, abs=0.1 * error)
    assert high == pytest.approx(values.mean() + error, abs=0.1 * error)


def test_an_interval_needs_examples() -> None:
    """And a level between 0 and 1."""
    with pytest.raises(InputError, match="no interval"):
        bootstrap_interval(np.zeros((0, 2)), lambda total: float(total[0]))


PAGE = (Path(__file__).parents[3] / "docs/metrics.md").read_text(encoding="utf-8")
[CODE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str, code: str = CODE
) -> Plugins[Metric]:
    """Write a package with an entry point, as pip does; return the metrics."""
    (folder / "own_metric_of_test.py").write_text(code)
    about = folder / "length_ratio-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: length-ratio\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[weft.metrics]\n{entry}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "own_metric_of_test", raising=False)
    return Plugins("metric", "weft.metrics", Metric, SHIPPED, "weft.runtime.metrics")  # type: ignore[type-abstract]


def test_the_example_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 words for 2."""
    entry = "length_ratio = own_metric_of_test:LengthRatio"
    metrics = installed(tmp_path, monkeypatch, entry)

    one = metrics.parse("length_ratio", "run.json")

    assert one.measure(["a b c"], ["d e"]).value == 1.5
    assert not one.higher_is_better


def test_installed_metrics_are_listed_after_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first line of their docstring and their package, or what prevents their import."""
    entry = "ratio = own_metric_of_test:LengthRatio\nbroken = own_metric_of_test:Nothing"

    lines = installed(tmp_path, monkeypatch, entry).lines()

    assert list(lines)[: len(SHIPPED)] == [*SHIPPED]
    assert {*lines} == {*METRICS.names(), *SHIPPED, "ratio", "broken"}
    assert lines["accuracy"] == "Percentage of examples whose class is predicted"
    assert lines["ratio"].endswith(" (from length-ratio)")
    assert lines["broken"].startswith("cannot be imported: AttributeError")


@pytest.mark.parametrize(
    ("entry", "code", "name", "problem"),
    [
        ("bleu = own_metric_of_test:LengthRatio", CODE, "bleu", "already exists, from weft"),
        ("one = own_metric_of_test:Nothing", CODE, "one", "cannot be imported: AttributeError"),
        ("one = own_metric_of_test:LengthRatio", "1 / 0", "one", "ZeroDivisionError"),
        ("one = own_metric_of_test:LengthRatio", CODE, "one", "the type of .* is not 'one'"),
        ("one = own_metric_of_test:Measured", CODE, "one", "is not a subclass of .*Metric"),
    ],
)
def test_a_broken_plug_in_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: str,
    code: str,
    name: str,
    problem: str,
) -> None:
    """The message says which package to correct or to remove."""
    metrics = installed(tmp_path, monkeypatch, entry, code)

    with pytest.raises(InputError, match=problem) as caught:
        metrics.parse(name, "run.json")

    assert "package length-ratio, entry point" in caught.value.location


def test_an_unknown_name_or_key_suggests_the_nearest() -> None:
    """With the place of the wrong value."""
    with pytest.raises(InputError, match="did you mean 'chrf'") as caught:
        METRICS.parse("chfr", "run.json#/metrics/0")
    assert caught.value.location == "run.json#/metrics/0/type"
    with pytest.raises(InputError, match="did you mean 'average'"):
        METRICS.parse({"type": "f1", "avarage": "micro"}, "run.json#/metrics/0")


def test_a_record_may_contain_metrics() -> None:
    """They are validated, dumped with their settings, and listed in the JSON Schema."""

    class Record(BaseModel):
        metrics: list[Annotated[Metric, Selected(METRICS)]]

    record = Record.model_validate({"metrics": ["bleu", {"type": "f1", "average": "micro"}]})

    assert [one.name for one in record.metrics] == ["bleu", "f1_micro"]
    assert Record.model_validate_json(record.model_dump_json()) == record
    assert "tokenize" in str(Record.model_json_schema())
