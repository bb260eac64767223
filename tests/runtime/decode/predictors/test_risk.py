"""Minimum Bayes risk decoding equals its definition."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sacrebleu
import torch
from torch import nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.predictors.predictor import Answer, Context
from weft.runtime.decode.predictors.registry import PREDICTORS, changed_predictor
from weft.runtime.decode.predictors.risk import least_risk
from weft.runtime.decode.settings import BeamSearch, Draws, Hypothesis, Risk
from weft.runtime.metrics.metric import SumMetric
from weft.runtime.metrics.registry import METRICS
from weft.specs.findings import InputError
from weft.specs.load import load

from .conftest import Text

ROWS = [{"source": "a b ac"}, {"source": "d"}, {"source": "ac d ac b a"}]
SMALL = {"vocab": 8, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 1, "dropout": 0.0}
LENGTH = {"max_factor": 0.0, "max_extra": 6}


def outputs(probabilities: dict[str, float], log: Any) -> list[Answer]:
    """Return answers with these texts and log probabilities."""
    return [
        Answer(
            text,
            hypothesis=Hypothesis(tokens=(), log_probability=log(p), score=0.0, finished=True),
        )
        for text, p in probabilities.items()
    ]


def logarithm(probability: float) -> float:
    """Return the natural logarithm."""
    return float(torch.tensor(probability, dtype=torch.float64).log())


def risk(metric: object, **settings: Any) -> Risk:
    """Return how outputs are chosen."""
    return Risk(METRICS.parse(metric, ""), **{"candidates": None, "nbest": 3, **settings})  # type: ignore[arg-type]


def test_three_hypotheses_have_the_expected_errors_that_a_calculation_gives() -> None:
    """Word error rates: of A to B and C 50 each, of B to A and C 50, and of C to A and B 100."""
    texts = outputs({"a b": 0.5, "a c": 0.3, "a b c d": 0.2}, logarithm)

    chosen = least_risk(risk("wer"), texts, (), {}, "target", drawn=False)

    assert [answer.value for answer in chosen] == ["a b", "a c", "a b c d"]
    assert [answer.score for answer in chosen] == pytest.approx([-25, -35, -80])
    assert [answer.hypothesis and answer.hypothesis.score for answer in chosen] == pytest.approx(
        [-25, -35, -80]
    )


def test_samples_have_equal_weights_and_count_as_often_as_they_were_drawn() -> None:
    """The text that was drawn twice wins, although another is more probable to the model."""
    drawn = [*outputs({"a b": 0.5, "a c": 0.3, "a b c d": 0.2}, logarithm)]
    drawn.insert(0, drawn[1])

    chosen = least_risk(risk("wer"), drawn, (), {}, "target", drawn=True)

    assert [answer.value for answer in chosen] == ["a c", "a b", "a b c d"]
    assert [answer.score for answer in chosen] == pytest.approx([-25, -37.5, -75])


def test_only_the_most_probable_outputs_are_candidates() -> None:
    """They are still compared with all outputs."""
    texts = outputs({"a b": 0.2, "a c": 0.3, "a b c d": 0.5}, logarithm)

    [best] = least_risk(risk("wer", candidates=1), texts, (), {}, "target", drawn=False)

    assert best.value == "a b c d"
    assert best.score == pytest.approx(-100 * 0.5)


def test_each_pair_of_texts_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three samples of two texts and a further candidate make three times two pairs."""
    pairs: list[tuple[str, str]] = []
    metric = METRICS.parse("exact_match", "")
    assert isinstance(metric, SumMetric)
    measure = type(metric).statistics

    def counting(self: Any, predictions: Any, references: Any) -> Any:
        pairs.extend(zip(predictions, references, strict=True))
        return measure(self, predictions, references)

    monkeypatch.setattr(type(metric), "statistics", counting)
    drawn = [*outputs({"a": 0.5, "b": 0.3}, logarithm), *outputs({"a": 0.5}, logarithm)]

    least_risk(risk("exact_match"), drawn, outputs({"c": 0.1}, logarithm), {}, "x", drawn=True)

    assert sorted(pairs) == [(one, other) for one in "abc" for other in "ab"]


@pytest.fixture(scope="module")
def context() -> Context:
    """Return a small translator."""
    torch.manual_seed(0)
    model = build(check(load("transformer-tiny").form, registry(), SMALL)).eval()
    return Context((model,), {"source": Text("source"), "target": Text("target")}, "target")


def hypotheses(context: Context, search: BeamSearch | Draws) -> list[list[Hypothesis]]:
    """Return what a search finds for the rows."""
    words = context.vocabulary("source")
    requests = [Request([*words.encode(row["source"]), words.eos]) for row in ROWS]
    special = SpecialTokens.of(context.vocabulary("target"))
    return decode_ids(context.models, requests, special, search)


@pytest.mark.integration
@pytest.mark.parametrize("metric", ["chrf", "bleu"])
def test_the_answer_is_the_sample_with_the_best_mean_of_sentence_scores(
    context: Context, metric: str
) -> None:
    """The scores of sentences by sacreBLEU, over samples that the decoder returns."""
    settings = {"samples": 6, "seed": 3, "temperature": 1.5, **LENGTH}
    predictor = PREDICTORS.parse({"type": "mbr", "metric": metric, **settings}, "").make(context)
    score: Any = {"chrf": sacrebleu.sentence_chrf, "bleu": sacrebleu.sentence_bleu}[metric]

    answers = predictor.answers(ROWS)

    decode = context.vocabulary("target").decode
    for answer, draws in zip(answers, hypotheses(context, Draws(**settings)), strict=True):
        texts = [decode(draw.tokens) for draw in draws]
        means = {one: sum(score(one, [other]).score for other in texts) / 6 for one in texts}
        assert answer.score == pytest.approx(max(means.values()))
        assert means[answer.value] == pytest.approx(answer.score)
        assert answer.others == ()


@pytest.mark.integration
def test_hypotheses_of_beams_are_weighted_by_their_probabilities(context: Context) -> None:
    """Without samples, as of Kumar and Byrne; n-best outputs have descending values."""
    value = {"type": "mbr", "samples": 0, "beam": 4, "nbest": 4, "metric": "chrf", **LENGTH}

    answers = PREDICTORS.parse(value, "").make(context).answers(ROWS)

    decode = context.vocabulary("target").decode
    for answer, beams in zip(
        answers, hypotheses(context, BeamSearch(beam=4, nbest=4, **LENGTH)), strict=True
    ):
        weights = torch.tensor([beam.log_probability for beam in beams]).softmax(0).tolist()
        texts = [decode(beam.tokens) for beam in beams]
        values = {
            text: sum(
                weight * sacrebleu.sentence_chrf(text, [other]).score
                for weight, other in zip(weights, texts, strict=True)
            )
            for text in texts
        }
        ranked = [answer, *answer.others]
        assert {one.value: one.score for one in ranked} == pytest.approx(values, abs=1e-3)
        assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)


@pytest.mark.integration
def test_beams_may_be_candidates_beside_samples(context: Context) -> None:
    """The best of one sample and four beams is found among the beams too."""
    settings = {"samples": 2, "beam": 4, "nbest": 6, "temperature": 9.0, "metric": "chrf"}
    predictor = PREDICTORS.parse({"type": "mbr", **settings, **LENGTH}, "").make(context)

    answers = predictor.answers(ROWS)

    decode = context.vocabulary("target").decode
    beams = hypotheses(context, BeamSearch(beam=4, nbest=4, **LENGTH))
    for answer, texts in zip(answers, beams, strict=True):
        values = {one.value for one in (answer, *answer.others)}
        assert values >= {decode(text.tokens) for text in texts}


@pytest.mark.integration
def test_an_answer_depends_on_its_row_and_the_seed_alone(context: Context) -> None:
    """Rows alone have the answers of the batch."""
    predictor = PREDICTORS.parse({"type": "mbr", "samples": 5, **LENGTH}, "").make(context)

    together = predictor.predict(ROWS)

    assert together == [predictor.predict([row])[0] for row in ROWS]


@pytest.mark.integration
def test_continuations_are_chosen_among_samples() -> None:
    """By `generate`, whose samples count as often as they are drawn."""
    torch.manual_seed(0)
    graph = check(load("gpt2").form, registry(), {**SMALL, "max_length": 64})
    model: nn.Module = build(graph).eval()
    context = Context((model,), {"text": Text("text"), "start": Text("start")}, "text")
    settings = {"prefix": "start", "max_new": 4, "temperature": 1.2, "samples": 5, "seed": 2}
    rows = [{"start": row["source"]} for row in ROWS]

    drawn = PREDICTORS.parse({"type": "generate", **settings}, "").make(context)
    chosen = PREDICTORS.parse({"type": "generate", "metric": "chrf", **settings}, "").make(context)

    for draws, [answer] in zip(drawn.stream(rows), chosen.stream(rows), strict=True):  # type: ignore[attr-defined]
        texts = [draw.value for draw in draws]
        assert len(texts) == 5
        means = [
            sum(sacrebleu.sentence_chrf(one, [other]).score for other in texts) / 5 for one in texts
        ]
        assert answer.score == pytest.approx(max(means))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"metric": "perplexity"}, "no value for a sentence"),
        ({"metric": "accuracy"}, "no value for a sentence"),
        ({"metric": "bleu:target"}, "'column' has no effect"),
        ({"samples": 1}, "nothing to choose"),
        ({"samples": 0}, "nothing to choose"),
        ({"samples": 0, "beam": 4, "top_k": 3}, "'top_k' has no effect without samples"),
        ({"nbest": 33}, "'nbest' 33 is greater than the 32 outputs"),
        ({"candidates": 40}, "'candidates' 40 is greater than the 32 outputs"),
        ({"candidates": 4, "nbest": 5}, "'nbest' 5 is greater than the 4 'candidates'"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, Any], problem: str) -> None:
    """Before anything is decoded."""
    with pytest.raises(InputError, match=problem):
        PREDICTORS.parse({"type": "mbr", **settings}, "predict")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"metric": "chrf"}, "'metric' has no effect on a single output"),
        ({"metric": "chrf", "samples": 4}, "'samples' has no effect at temperature 0"),
        ({"candidates": 4}, "'candidates' has no effect without 'metric'"),
        (
            {"metric": "chrf", "temperature": 1.0, "samples": 4, "nbest": 5},
            "'nbest' 5 is greater than the 4 outputs",
        ),
    ],
)
def test_settings_of_continuations_without_effect_are_refused(
    settings: dict[str, Any], problem: str
) -> None:
    """As those of translations."""
    with pytest.raises(InputError, match=problem):
        PREDICTORS.parse({"type": "generate", **settings}, "predict")


def test_a_metric_makes_any_search_one_of_minimum_risk() -> None:
    """And the settings can be written and read again."""
    sampling = PREDICTORS.parse({"type": "sample", "samples": 8, "seed": 4}, "")

    changed = changed_predictor(sampling, {"metric": "bleu"}, "")

    written = json.loads(changed.model_dump_json(exclude_unset=True))
    assert written == {"type": "mbr", "samples": 8, "seed": 4, "metric": {"type": "bleu"}}
    assert PREDICTORS.parse(written, "") == changed
