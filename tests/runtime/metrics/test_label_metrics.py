"""Metrics of classes, tags, numbers, trees and losses against hand calculations."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from weft.extensions.parsing.decode.tree_repair import Repairs
from weft.extensions.parsing.trees.trees import Tree, read_trees
from weft.runtime.metrics.bootstrap import bootstrap_interval
from weft.runtime.metrics.metric import LossMetric, Metric
from weft.runtime.metrics.registry import METRICS
from weft.specs.findings import InputError


def metric(value: object) -> Metric:
    """Return a metric from its JSON value."""
    return METRICS.parse(value, "run.json#/metrics/0")


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
