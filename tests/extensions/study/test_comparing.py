"""Comparisons of checkpoints and of runs."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from scipy.special import stdtrit
from weft.extensions.study.comparison import System, compare, holm, summaries
from weft.runtime.cli.main import main
from weft.runtime.metrics.bootstrap import approximate_randomization, bootstrap_interval, resampled
from weft.runtime.metrics.metric import SumMetric
from weft.runtime.metrics.text import Bleu, Chrf
from weft.specs.findings import InputError

WORDS = ["the", "a", "dog", "cat", "sun", "runs", "sees", "big", "red", "house", "on", "under"]


def accuracy(total: NDArray[np.float64]) -> float:
    """Return the percentage of right examples."""
    return 100 * float(total[0] / total[1])


def corpus(noise: float, seed: int, lines: int = 60) -> tuple[list[str], list[str]]:
    """Return outputs with a share of wrong words, and references of 8 words."""
    rng, other = random.Random(1), random.Random(seed)
    references = [rng.choices(WORDS, k=8) for _ in range(lines)]
    outputs = [
        [other.choice(WORDS) if other.random() < noise else word for word in line]
        for line in references
    ]
    return [" ".join(line) for line in outputs], [" ".join(line) for line in references]


@pytest.mark.parametrize("noise", [0.3, 0.33, 0.4])
@pytest.mark.parametrize(("metric", "theirs"), [(Bleu(), BLEU()), (Chrf(), CHRF())])
def test_one_seed_gives_the_probabilities_of_sacrebleu(
    metric: SumMetric, theirs: BLEU | CHRF, noise: float
) -> None:
    """Approximate randomization with the same random numbers."""
    (base, references), (other, _) = corpus(0.3, 2), corpus(noise, 3)
    systems = [("base", base), ("other", other)]
    sums = [metric.statistics(one, references) for _, one in systems]

    ours = approximate_randomization(*sums, metric.value_of, trials=400)

    test = PairedTest(systems, {"m": theirs}, [references], "ar", n_samples=400)
    expected = next(v for k, v in test()[1].items() if k != "System")[1].p_value
    assert ours == pytest.approx(expected, abs=1 / 401)  # they add in float32


@pytest.mark.parametrize("metric", [Bleu(), Bleu(tokenize="char"), Chrf(word_order=2)])
def test_a_corpus_score_is_a_function_of_the_sums_of_its_lines(metric: SumMetric) -> None:
    """The total of the lines gives sacreBLEU's corpus score."""
    outputs, references = corpus(0.3, 2)

    total = metric.statistics(outputs, references).sum(0)

    assert metric.value_of(total) == pytest.approx(metric.measure(outputs, references).value)


def test_holm_multiplies_the_smallest_probability_by_their_number() -> None:
    """0.01 x 4, then 0.02 x 3, then at least as much."""
    assert holm([0.02, 0.01, 0.9, 0.03]) == [0.06, 0.04, 0.9, 0.06]
    assert holm([None, 0.5]) == [None, 0.5]


def rows(right: list[list[int]]) -> tuple[NDArray[np.float64], ...]:
    """Return sums of examples that are right or wrong, for each seed."""
    return tuple(np.stack((np.array(one, float), np.ones(len(one))), 1) for one in right)


def system(name: str, right: list[list[int]]) -> System:
    """Return a system whose metric is the accuracy."""
    sums = rows(right)
    return System(name=name, values=tuple(accuracy(one.sum(0)) for one in sums), sums=sums)


def test_variance_over_seeds_is_pooled_by_hand() -> None:
    """Without sums: values 1, 3 and 6, 8 have a pooled variance of 2, and a t of 5 / sqrt(2)."""
    one, two = System(name="a", values=(1.0, 3.0)), System(name="b", values=(6.0, 8.0))

    [found] = compare([one, two], [("a", "b")], None)

    t = 5 / math.sqrt(2 * (1 / 2 + 1 / 2))
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))  # two degrees of freedom
    assert found.difference == 5
    width = 4.302653 * math.sqrt(2)
    assert (found.low, found.high) == (pytest.approx(5 - width), pytest.approx(5 + width))
    assert found.detectable == pytest.approx((4.302653 + 1.060660) * math.sqrt(2))
    third = System(name="c", values=(4.0, 4.0))  # the pair varies, and the others do not
    assert compare([one, two, third], [("a", "b")], None)[0].p == pytest.approx(found.p)
    third = System(name="c", values=(4.0, 6.0))  # all vary alike, so three degrees of freedom
    pooled = compare([one, two, third], [("a", "b")], None)[0]
    assert pooled.high == pytest.approx(5 + 3.182446 * math.sqrt(2))


def test_a_system_that_varies_far_more_than_the_others_is_not_pooled_by_hand() -> None:
    """Six systems of variance 0.5 and one of 800, whose comparisons have both variances."""
    names = "abcdef"
    like = [System(name=n, values=(float(at), at + 1.0)) for at, n in enumerate(names)]
    wild = System(name="wild", values=(0.0, 40.0))

    alike, other = compare([*like, wild], [("a", "b"), ("a", "wild")], None)

    assert alike.high == pytest.approx(1 + 2.446912 * math.sqrt(0.5))  # six degrees of freedom
    assert other.difference == 19.5
    variance = 0.5 / 2 + 800 / 2
    degrees = variance**2 / ((0.5 / 2) ** 2 / 6 + (800 / 2) ** 2)
    assert other.high == pytest.approx(
        19.5 + stdtrit(degrees, 0.975) * math.sqrt(variance), rel=1e-6
    )
    mean = summaries([*like, wild], None)[-1]
    assert mean.high == pytest.approx(20 + 12.706205 * 20)

    # Cochran's critical value for seven variances of one degree of freedom at 1 % is 0.838.
    total = 6 * 0.5
    for share, pooled in ((0.83, True), (0.845, False)):
        spread = math.sqrt(2 * total * share / (1 - share))
        found = compare([*like, System(name="wild", values=(0.0, spread))], [("a", "b")], None)[0]
        own = total / 6 if not pooled else total / (1 - share) / 7
        width = stdtrit(7 if pooled else 6, 0.975) * math.sqrt(own)
        assert found.high == pytest.approx(1 + width)


def test_a_system_against_itself_is_not_distinguishable() -> None:
    """The difference is 0, and so is every resampled one."""
    same = [[1, 0, 1, 1, 0, 1, 0, 1]]

    [found] = compare([system("a", same), system("b", same)], [("a", "b")], accuracy)

    assert (found.difference, found.verdict) == (0.0, "not distinguishable")
    assert (found.p, found.detectable) == (1.0, None)


def test_lower_may_be_better_and_one_value_cannot_be_tested() -> None:
    """The verdict follows the metric; without sums and seeds there is none."""
    one, two = System(name="a", values=(1.0, 1.1)), System(name="b", values=(9.0, 9.1))
    [found] = compare([one, two], [("a", "b")], None, higher_is_better=False)
    assert found.verdict == "worse"

    single = [System(name="a", values=(1.0,)), System(name="b", values=(9.0,))]
    [untested] = compare(single, [("a", "b")], None)
    assert (untested.verdict, untested.p, untested.low) == ("not tested", None, None)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_value_that_is_not_finite_hides_no_other_difference(value: float) -> None:
    """The other pair is compared as if the diverged system were not there."""
    good = [System(name=name, values=own) for name, own in (("a", (1.0, 2.0)), ("b", (8.0, 9.0)))]
    diverged = System(name="c", values=(value, 3.0))
    [expected] = compare(good, [("a", "b")], None)

    alone, other = compare([*good, diverged], [("a", "b"), ("a", "c")], None)

    assert alone == expected
    t = 7 / math.sqrt(0.5)
    assert alone.p == pytest.approx(1 - t / math.sqrt(2 + t * t))  # two degrees of freedom
    assert (other.p, other.adjusted, other.verdict, other.low) == (None, None, "not tested", None)
    assert summaries([*good, diverged], None)[:2] == summaries(good, None)
    assert summaries([diverged], None)[0].spread is None


def test_sums_that_are_not_finite_are_not_tested() -> None:
    """A score may be finite without them, and no resampled corpus would be."""
    good, bad = system("a", [[1, 0, 1, 1]]), system("b", [[0, 0, 1, 0]])
    wrong = System(name="b", values=bad.values, sums=(bad.sums[0] * np.nan,))

    [found] = compare([good, wrong], [("a", "b")], accuracy)

    assert (found.verdict, found.p) == ("not tested", None)


def test_the_interval_of_a_row_with_one_seed_has_the_variance_over_seeds_of_the_others() -> None:
    """By hand: a pooled variance of 2 with one degree of freedom, and one seed."""
    several, one = System(name="a", values=(1.0, 3.0)), System(name="b", values=(6.0,))

    mean = summaries([several, one], None)[1]

    assert mean.high == pytest.approx(6 + 12.706205 * math.sqrt(2))


def test_intervals_contain_examples_and_seeds() -> None:
    """By hand: values 50 and 100 differ over seeds, so the interval is that of two seeds."""
    sums = rows([[1, 0] * 50, [1] * 100])
    found = summaries([System(name="a", values=(50.0, 100.0), sums=sums)], accuracy)[0]

    assert (found.mean, found.spread) == (75.0, pytest.approx(math.sqrt(1250)))
    seeds = 12.7062 * 25
    assert found.high is not None
    assert 75 + 0.9 * seeds < found.high < 75 + 1.1 * seeds


def test_examples_of_different_numbers_are_refused() -> None:
    """They cannot be paired."""
    with pytest.raises(InputError, match="on 2 and 3 examples"):
        resampled([np.ones((2, 2)), np.ones((3, 2))], accuracy)


def test_an_interval_of_a_mean_covers_it() -> None:
    """The 95 % interval of 400 coin tosses is the normal one, 50 ± 4.9."""
    sums = rows([[0, 1] * 200])[0]

    low, high = bootstrap_interval(sums, accuracy, samples=4000)

    assert low == pytest.approx(50 - 4.9, abs=0.5)
    assert high == pytest.approx(50 + 4.9, abs=0.5)


def simulated(
    rng: np.random.Generator,
    systems: int,
    seeds: int,
    gain: float = 0.0,
    examples: int = 300,
    wild: int = 0,
) -> list[System]:
    """Return systems whose true accuracy is the same, except for the gain of the last one.

    Examples differ in difficulty; a seed shifts all examples a little and each one at random, and
    those of the first `wild` systems by twenty times as much.
    """
    difficulty = rng.normal(0.5, 1.5, examples)  # test sets are samples, too
    found = []
    for number in range(systems):
        sums = []
        for _ in range(seeds):
            scale = 3.0 if number < wild else 0.15
            shift = rng.normal(0, scale) + (gain if number == systems - 1 else 0.0)
            chance = 1 / (1 + np.exp(-(difficulty + shift + rng.normal(0, 0.7, examples))))
            sums.append(
                np.stack(((rng.random(examples) < chance).astype(float), np.ones(examples)), 1)
            )
        values = tuple(accuracy(one.sum(0)) for one in sums)
        found.append(System(name=str(number), values=values, sums=tuple(sums)))
    return found


def alarms(seeds: int, studies: int, gain: float = 0.0, systems: int = 4, wild: int = 0) -> int:
    """Return the number of simulated studies in which any row differs from the first tame one."""
    rng, count = np.random.default_rng(seeds), 0
    for _ in range(studies):
        made = simulated(rng, systems, seeds, gain, wild=wild)
        first, *others = made[wild:]
        pairs = [(first.name, one.name) for one in others]
        found = compare(made, pairs, accuracy, samples=200)
        count += any(one.verdict in ("better", "worse") for one in found)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_at_most_one_study_in_twenty_raises_a_false_alarm(seeds: int) -> None:
    """Of 200 A/A studies with three comparisons each: 10 expected at most, 17 with 99 %."""
    assert alarms(seeds, 200) <= 17


@pytest.mark.slow
def test_rows_that_vary_far_more_neither_raise_false_alarms_nor_hide_a_difference() -> None:
    """Two of ten rows, with two seeds: 21 of 50 real differences are found, and 33 without them."""
    assert alarms(2, 200, systems=10, wild=2) <= 17
    assert alarms(2, 50, gain=1.0, systems=10, wild=2) >= 15


@pytest.mark.slow
def test_a_real_difference_is_found() -> None:
    """The same test is not blind: a gain of about 15 points is seen in most studies."""
    assert alarms(3, 50, gain=1.0) >= 40


Capture = pytest.CaptureFixture[str]


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Write references, good and bad outputs of two seeds, into a folder."""
    rng = random.Random(0)
    lines = [rng.choices("abcdefgh", k=6) for _ in range(40)]
    (tmp_path / "ref").write_text("".join(" ".join(line) + "\n" for line in lines))
    for name, noise in (("good1", 0.1), ("good2", 0.1), ("bad1", 0.6), ("bad2", 0.6)):
        made = [[w if rng.random() > noise else "x" for w in line] for line in lines]
        (tmp_path / name).write_text("".join(" ".join(line) + "\n" for line in made))
    return tmp_path


def words(outputs: Path, first: str, second: str, *more: str) -> list[str]:
    """Return the words of a command line."""
    sides = [",".join(str(outputs / one) for one in text.split(",")) for text in (first, second)]
    return ["compare", *sides, "--reference", str(outputs / "ref"), *more]


@pytest.mark.integration
def test_one_seed_and_several_are_compared(outputs: Path, capsys: Capture) -> None:
    """The verdict is about B; the test depends on the number of seeds."""
    assert main(words(outputs, "good1", "bad1", "--metric", "chrf", "--metric", "wer")) == 0
    text = capsys.readouterr().out
    assert text.count("B is worse") == 2
    assert "approximate randomization over 40 examples" in text

    assert main(words(outputs, "bad1,bad2", "good1,good2", "--metric", "chrf", "--json")) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "better"
    assert found["test"].startswith("t test over 2 and 2 seeds")
    assert found["low"] < found["difference"] < found["high"]


@pytest.mark.integration
@pytest.mark.parametrize(("first", "second"), [("good1", "good1"), ("good1,good2", "good2,good1")])
def test_equal_outputs_are_called_so(
    first: str, second: str, outputs: Path, capsys: Capture
) -> None:
    """There is no difference to test, and none that would have been detected."""
    assert main(words(outputs, first, second)) == 0

    score, said = capsys.readouterr().out.splitlines()
    assert score.startswith("bleu: A ")
    assert said == "  A and B have the same predictions"
    assert main(words(outputs, "good1", "good1", "--json")) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["difference"], found["detectable"]) == (0.0, None)


@pytest.mark.integration
def test_a_seed_given_twice_is_not_another(outputs: Path, capsys: Capture) -> None:
    """Both systems have the first seed, and one has it twice."""
    assert main(words(outputs, "good1,good1", "good1,good2")) == 0

    assert "same predictions" not in capsys.readouterr().out


def test_wrong_uses_are_refused(outputs: Path, capsys: Capture) -> None:
    """Without references, with other numbers of lines, and with a metric of losses."""
    assert main(["compare", str(outputs / "good1"), str(outputs / "bad1")]) == 2
    (outputs / "short").write_text("a\n")
    assert main(words(outputs, "good1", "short")) == 1
    assert main(words(outputs, "good1", "bad1", "--metric", "nll")) == 1
    assert "cannot be computed from outputs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--test", "valid"), ("--data-root", "x"), ("--device", "cpu"), ("--precision", "float32")],
)
def test_options_of_checkpoints_are_refused_for_files(
    option: str, value: str, outputs: Path, capsys: Capture
) -> None:
    """No model is opened, so they would be ignored."""
    assert main(words(outputs, "good1", "bad1", option, value)) == 2
    assert f"'{option}': it has no effect on files of outputs" in capsys.readouterr().err


def test_a_system_that_does_not_exist_is_named(outputs: Path, capsys: Capture) -> None:
    """It is not taken for a checkpoint beside a file."""
    assert main(words(outputs, "good1", "nowhere")) == 1
    said = capsys.readouterr().err
    assert "does not exist" in said
    assert str(outputs / "nowhere") in said
