"""Rates and sizes of batches over the updates of a run."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.data.plans import planning
from weft.runtime.data.plans.lengths import LengthSummary, summarized
from weft.runtime.data.plans.plan import generator
from weft.runtime.data.plans.planning import PlannedBatch, plan_rows, stream_plans
from weft.runtime.data.settings import BatchSettings
from weft.runtime.train.distributed.sampler import MicroBatches, stream_micro_batches
from weft.runtime.train.plan import plan_run
from weft.runtime.train.recipe.schedule import (
    Schedule,
    of_paper,
    peak_of,
    share_of_peak,
    wrong_schedule,
)
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

COSINE: list[dict[str, Any]] = [{"to": 1, "over": 10}, {"shape": "cosine", "to": 0.2}]


def schedule(pieces: list[dict[str, Any]] | None, peak: Any = 1.0) -> Schedule:
    """Return a schedule as a run file has it."""
    return Schedule.model_validate({"peak": peak, "pieces": pieces})


def told(pieces: list[dict[str, Any]], updates: int, *, shortened: bool = False) -> list[str]:
    """Return level, place and problem of each finding."""
    findings = wrong_schedule(schedule(pieces), updates, shortened=shortened)
    return [f"{finding.level} {finding.at} {finding.problem}" for finding in findings]


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_the_default_peaks_where_the_paper_does(d_model: int, peak: float) -> None:
    """The base model reaches 6.99e-4 and the big one 4.94e-4, both at update 4000."""
    shares = {u: share_of_peak(of_paper(), u, 100_000) for u in (3999, 4000, 4001)}

    assert peak_of(of_paper(), {"d_model": d_model}) == pytest.approx(peak, rel=1e-3)
    assert shares[4000] == 1.0
    assert max(shares, key=lambda update: shares[update]) == 4000


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_the_default_is_the_formula_of_the_paper(update: int, d_model: int) -> None:
    """d_model^-0.5 * min(update^-0.5, update * 4000^-1.5), section 5.3."""
    peak = peak_of(of_paper(), {"d_model": d_model})

    rate = peak * share_of_peak(of_paper(), update, 10**6)

    assert rate == pytest.approx(d_model**-0.5 * min(update**-0.5, update * 4000**-1.5))


@pytest.mark.parametrize(("update", "share"), [(5, 0.5), (10, 1.0), (60, 0.6), (110, 0.2)])
def test_a_cosine_by_hand(update: int, share: float) -> None:
    """From 1 to 0.2 between updates 10 and 110: 0.6 in the middle."""
    assert share_of_peak(schedule(COSINE), update, 110) == pytest.approx(share)


def test_the_last_piece_takes_what_the_others_leave() -> None:
    """A run of twice the updates reaches the same value at its end, not in its middle."""
    short, long = (share_of_peak(schedule(COSINE), n, n) for n in (110, 220))

    assert short == long == pytest.approx(0.2)
    assert share_of_peak(schedule(COSINE), 110, 220) > 0.5


@pytest.mark.parametrize(
    ("piece", "share"),
    [
        ({"to": 0}, 0.75),
        ({"shape": "cosine", "to": 0}, (1 + math.sqrt(0.5)) / 2),
        ({"shape": "sqrt", "to": 0}, 0.5),
        ({"to": 0.6}, 0.9),
        ({"from": 0.5}, 0.5),
        ({}, 1.0),
    ],
)
def test_the_shapes_at_a_quarter_of_their_length(piece: dict[str, Any], share: float) -> None:
    """After two updates of rise, the first of four."""
    pieces: list[dict[str, Any]] = [{"to": 1, "over": 2}, {**piece, "over": 4}]

    assert share_of_peak(schedule(pieces), 3, 6) == pytest.approx(share)


def test_a_power_stops_at_its_limit() -> None:
    """From update 4 on, the share is sqrt(4 / update), at least 0.4."""
    pieces: list[dict[str, Any]] = [{"to": 1, "over": 4}, {"shape": "power", "to": 0.4}]

    shares = [share_of_peak(schedule(pieces), n, 1000) for n in (4, 16, 25, 100)]

    assert shares == pytest.approx([1.0, 0.5, 0.4, 0.4])


def test_shares_of_the_run_grow_with_it() -> None:
    """A tenth of rise, six tenths at the peak, and the rest of the fall."""
    pieces = [{"to": 1, "over": 0.1}, {"over": 0.6}, {"to": 0}]

    for updates in (10, 1000):
        marks = [updates // 20 or 1, updates // 10, updates * 7 // 10, updates * 85 // 100]
        shares = [share_of_peak(schedule(pieces), n, updates) for n in marks]
        assert shares[1:3] == [1.0, 1.0]
        assert 0 < shares[3] < 1
        assert share_of_peak(schedule(pieces), updates, updates) == 0.0


def test_without_pieces_the_rate_is_constant() -> None:
    """The peak is the rate of every update."""
    assert {share_of_peak(schedule(None), n, 9) for n in (1, 5, 9)} == {1.0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"peak": 0},
        {"peak": "0.1"},
        {"peak": "=d_model **"},
        {"type": "cosine"},
        {"pieces": []},
        {"pieces": [{"to": 1}, {"to": 0}]},
        {"pieces": [{"to": 1, "over": 0}]},
        {"pieces": [{"to": 1, "over": 1.5}]},
        {"pieces": [{"from": 1, "to": 1}]},
        {"pieces": [{"shape": "cosine"}]},
        {"pieces": [{"to": 1, "exponent": 2}]},
        {"pieces": [{"shape": "warmup", "to": 1}]},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    """Two pieces that both take the rest, lengths of no update, and settings of other shapes."""
    with pytest.raises(ValidationError):
        Schedule.model_validate(wrong)


@pytest.mark.parametrize("params", [{}, {"d_model": "wide"}, {"d_model": 0}])
def test_a_peak_without_a_value_is_refused_with_the_params(params: dict[str, Any]) -> None:
    """The model has no such param, or the formula has no value."""
    with pytest.raises(InputError, match="write a number"):
        peak_of(of_paper(), params)


def test_update_zero_is_refused() -> None:
    """Counting from 0 would train the first update at rate 0."""
    with pytest.raises(ValueError, match="counted from 1"):
        share_of_peak(of_paper(), 0, 9)


@pytest.mark.parametrize(
    ("pieces", "updates", "place", "problem"),
    [
        ([{"to": 1, "over": 50}], 12, "/schedule/pieces/0", "ends at update 50, but the run at 12"),
        (COSINE, 10, "/schedule/pieces/1", "begins after update 10, but the run ends at 10"),
        ([{"to": 1, "over": 4}, {"to": 0, "over": 2}], 12, "/schedule/pieces/1", "from update 6"),
        ([{"to": 1, "over": 0.01}, {"to": 0}], 12, "/schedule/pieces/0", "less than one"),
        (
            [{"to": 1, "over": 5}, {"to": 0}, {"to": 1, "over": 7}],
            12,
            "/schedule/pieces/1",
            "12 of 12",
        ),
        ([{"over": 3}, {"from": 1}], 12, "/schedule/pieces/0", "is 0 in updates 1 to 3"),
        ([{"from": 1, "to": -1}], 12, "/schedule/pieces/0", "below 0"),
    ],
)
def test_updates_that_do_not_train_as_said_are_errors(
    pieces: list[dict[str, Any]], updates: int, place: str, problem: str
) -> None:
    """A rise without an end, pieces after the end of the run, and rates of 0."""
    [finding] = told(pieces, updates)

    assert finding.startswith(f"error {place}")
    assert problem in finding


def test_a_fall_that_the_run_cuts_off_is_a_warning() -> None:
    """The rate is above 0 until the end, but it does not reach the last value."""
    [finding] = told([{"to": 1, "over": 4}, {"to": 0, "over": 100}], 12)

    assert finding.startswith("warning /schedule/pieces/1")


def test_a_run_that_is_shortened_to_try_it_may_end_in_its_rise() -> None:
    """With a warning; the pieces behind it are not mentioned."""
    assert [text.split()[:2] for text in told(COSINE, 5, shortened=True)] == [
        ["warning", "/schedule/pieces/0"]
    ]


def test_a_run_that_is_lengthened_never_trains_at_rate_0() -> None:
    """An error also if the updates were overridden, as by `--resume --set updates=40`."""
    [finding] = told([{"to": 1, "over": 4}, {"to": 0, "over": 8}], 40, shortened=True)

    assert finding.startswith("error /schedule/pieces/1 the rate is 0 from update 12 on")


SETTINGS = BatchSettings(tokens=40, pool=3)
STEPS = [{"from": 60, "over": 5}, {"from": 150}]
RAMP = [{"from": 32, "to": 64, "over": 8}, {"from": 64}]


@dataclass
class Rows:
    """Rows with lengths."""

    lengths: NDArray[np.int64]
    folder: Path = Path("data")
    starts: NDArray[np.bool_] | None = None
    axes: dict[str, NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        """Store the lengths of the only axis."""
        self.axes = {"target": self.lengths}

    @property
    def summary(self) -> LengthSummary:
        """What plans must know of all lengths."""
        return summarized([self.lengths])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lengths)


@pytest.fixture
def rows() -> Rows:
    """Return a hundred rows of 2 to 12 tokens."""
    return Rows(np.random.default_rng(1).integers(2, 13, size=100))


def planned(rows: Rows, limits: Sequence[int], **at: Any) -> list[PlannedBatch]:
    """Return as many batches as there are limits."""
    return list(stream_plans(rows, SETTINGS, 3, limits=iter(limits), **at))


def test_each_row_occurs_once_in_an_epoch_however_the_limit_changes(rows: Rows) -> None:
    """And each batch has the limit of its own number."""
    limits = [24, 24, 40, 40, 24, 90, 90, 60, *[30] * 60]

    batches = planned(rows, limits)

    for batch, limit in zip(batches, limits, strict=True):
        longest = int(rows.lengths[batch.rows].max())
        assert len(batch.rows) * longest <= limit
    first = np.concatenate([batch.rows for batch in batches if batch.at.epoch == 0])
    assert batches[-1].at.epoch > 0
    assert sorted(first.tolist()) == list(range(100))


def test_a_limit_that_does_not_change_gives_the_plan_of_an_epoch(rows: Rows) -> None:
    """Batch for batch, in each epoch."""
    random = (generator(3, epoch) for epoch in (0, 1))
    epochs = [plan_rows([rows.lengths], SETTINGS, state, count=100) for state in random]
    expected = [batch.tolist() for epoch in epochs for batch in epoch]

    assert [batch.rows.tolist() for batch in planned(rows, [40] * len(expected))] == expected


def test_any_place_is_resumed_with_the_batch_that_followed(rows: Rows) -> None:
    """Also where the limit changes, and at the end of an epoch."""
    limits = [24, 24, 40, 24, 90, 60, *[50] * 30]
    batches = planned(rows, limits)

    for number in range(1, len(limits)):
        again = planned(rows, limits[number:], at=batches[number - 1].at)
        assert [each.rows.tolist() for each in again] == [
            each.rows.tolist() for each in batches[number:]
        ]
        assert [each.at for each in again] == [each.at for each in batches[number:]]


def test_an_epoch_is_planned_when_it_begins(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again only where the limit changes."""
    plans = list[int]()

    def counting(*arguments: Any, **named: Any) -> Any:
        plans.append(arguments[1].tokens)
        return plan_rows(*arguments, **named)

    monkeypatch.setattr(planning, "plan_rows", counting)
    stream = stream_plans(rows, SETTINGS, 3, limits=chain(repeat(24, 5), repeat(48)))

    list(islice(stream, 5))
    assert plans == [24]
    list(islice(stream, 3))
    assert plans == [24, 48]


def test_a_limit_cannot_change_between_segments_of_documents(rows: Rows) -> None:
    """A document continues in the same row of the next batch."""
    rows.starts = np.arange(100) % 4 == 0

    with pytest.raises(InputError, match="changes to 60 tokens within an epoch"):
        planned(rows, [40, 40, 60])


def run_with(toy_run: Callable[..., Run], tokens: object, **changes: Any) -> Run:
    """Return a run with a limit of tokens."""
    return toy_run(batch={"tokens": tokens, "pool": 3}, **changes)


def test_a_gradual_limit_has_eight_sizes_from_one_power_of_two_to_the_next(
    toy_run: Callable[..., Run],
) -> None:
    """Rounded down, but exact where a piece begins and ends."""
    run = run_with(toy_run, [{"from": 1024, "to": 2100, "over": 100}, {"from": 2100}], updates=120)

    limits = [run.tokens_at(update) for update in range(1, 121)]

    assert set(limits) == {*range(1024, 2049, 128), 2100}
    assert limits == sorted(limits)
    assert run.token_range() == (1024, 2100)


def test_processes_share_batches_whose_limit_changes(
    toy_run: Callable[..., Run], tmp_path: Path
) -> None:
    """The batches of three processes together are those of one, in each update."""
    run = run_with(toy_run, RAMP, updates=12, accumulate=[{"from": 2, "over": 4}, {"from": 3}])
    corpus = api.prepare_run(plan_run(run, ""), tmp_path).train

    def of(rank: int, size: int) -> Iterator[MicroBatches]:
        return stream_micro_batches(
            corpus,
            run.batch,
            5,
            accumulate=map(run.batches_at, range(1, 13)),
            tokens=map(run.tokens_at, range(1, 13)),
            share=(rank, size),
        )

    alone = list(islice(of(0, 1), 12))
    shared = [list(islice(of(rank, 3), 12)) for rank in range(3)]
    for number, update in enumerate(alone):
        together = sorted(
            (which, batch.rows.tolist())
            for process in shared
            for which, batch in process[number].batches
        )
        assert together == [(which, batch.rows.tolist()) for which, batch in update.batches]
        for _, batch in update.batches:
            assert max(value.numel() for value in batch.inputs.values()) <= run.tokens_at(
                number + 1
            )


@pytest.mark.parametrize(
    ("tokens", "at", "problem"),
    [
        ([{"from": 200, "over": 12}, {"from": 300}], "/batch/tokens/1", "begins after update 12"),
        ([{"from": 200, "to": 300, "over": 20}], "/batch/tokens/0", "does not reach 300"),
        ([{"to": 300}], "/batch/tokens", "a batch has 24 tokens, but a text may have 251"),
        ([{"from": -90, "to": 300}], "/batch/tokens", "tokens hold no text"),
        ([{"from": 300, "over": 6}, {"from": 20}], "/batch/tokens", "a batch has 20 tokens"),
        ([{"from": 300, "over": 0.01}, {"from": 400}], "/batch/tokens/0", "less than one"),
    ],
)
def test_wrong_pieces_are_findings(
    toy_run: Callable[..., Run], tokens: object, at: str, problem: str
) -> None:
    """With their places."""
    run = run_with(toy_run, tokens)
    run = run.model_copy(
        update={
            "data": run.data.model_copy(
                update={"filter": run.data.filter.model_copy(update={"max_length": 250})}
            )
        }
    )

    findings = plan_run(run, "run.json").findings

    assert [finding for finding in findings if finding.at == at and problem in finding.problem]


@pytest.mark.parametrize("tokens", [1, [], [{"over": 4}, {}, {}]])
def test_wrong_limits_are_refused(toy_run: Callable[..., Run], tokens: object) -> None:
    """Before anything is planned."""
    with pytest.raises(ValueError, match=r"batch\.tokens"):
        run_with(toy_run, tokens)


@pytest.mark.integration
def test_a_row_that_fits_no_smaller_batch_is_refused_before_training(
    toy_run: Callable[..., Run], tmp_path: Path
) -> None:
    """The limit falls below the longest row only after the sixth update."""
    run = run_with(toy_run, [{"from": 200, "over": 6}, {"from": 5}])

    with pytest.raises(InputError, match="more than the batch limit of 5"):
        api.train(run, out=tmp_path / "run")

    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.integration
def test_a_resumed_run_ends_with_the_same_bits(toy_run: Callable[..., Run], tmp_path: Path) -> None:
    """From a checkpoint within an epoch whose limit has changed; its state has the limits."""
    run = run_with(toy_run, STEPS, accumulate=1)
    straight = api.train(run, out=tmp_path / "straight")
    copied_to_update_8(tmp_path / "straight", tmp_path / "halves")

    resumed = api.train(run, out=tmp_path / "halves", resume=True)

    state = json.loads((tmp_path / "straight/checkpoints/000008/state.json").read_text())
    assert [tokens for tokens, _ in state["cuts"]] == [60, 150]
    assert sum(used for _, used in state["cuts"]) == state["position"] == 8
    assert straight.checkpoint is not None
    assert resumed.checkpoint is not None
    first, second = (
        (result.checkpoint / "weights.safetensors").read_bytes()  # type: ignore[operator]
        for result in (straight, resumed)
    )
    assert first == second


def copied_to_update_8(source: Path, target: Path) -> None:
    """Copy a run without what it did after its checkpoint of update 8."""
    shutil.copytree(source, target)
    for name in ("best", "averaged", "checkpoints/000012"):
        shutil.rmtree(target / name)


@pytest.mark.integration
def test_the_log_and_the_recipe_show_the_limits(
    toy_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the limit changes, and how many target tokens an update has."""
    run = run_with(toy_run, STEPS, accumulate=1)
    path = tmp_path / "toy.json"
    path.write_text(run.model_dump_json(by_alias=True, exclude_unset=True))

    assert main(["show", str(path)]) == 0
    assert "batch.tokens: updates 6 to 12, constant 150" in capsys.readouterr().out

    assert main(["train", str(path), "--out", str(tmp_path / "run")]) == 0
    output = capsys.readouterr()
    assert "update 6: batches of 150 tokens" in output.out + output.err
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert any(event.get("target_tokens_per_update", 0) > 0 for event in events)


@pytest.mark.parametrize("count", ["padded", "real"])
def test_noise_does_not_make_batches_larger_than_their_limit(
    toy_run: Callable[..., Run], tmp_path: Path, count: str
) -> None:
    """Typos double the pieces; parts of a batch have all of its rows, and numbers of their own."""
    run = toy_run(batch={"tokens": 60, "count": count}, accumulate=2)
    noisy = {"type": "text", "tokenizer": "tokenizer", "noise": [{"type": "typos", "rate": 0.4}]}
    value = run.model_dump(mode="json", by_alias=True, exclude_unset=True)
    value["data"]["columns"]["source"] = noisy
    run = Run.model_validate(value)
    corpus = api.prepare_run(plan_run(run, ""), tmp_path).train
    plans = stream_plans(corpus, run.batch_at(1), 5)

    divided = 0
    for update in islice(stream_micro_batches(corpus, run.batch, 5, accumulate=2), 12):
        numbers = [number for number, _ in update.batches]
        divided += len(numbers) > 2
        assert len({*numbers}) == len(numbers) == update.rounds
        rows = [row for _, batch in update.batches for row in batch.rows.tolist()]
        assert sorted(rows) == sorted(row for _, part in islice(plans, 2) for row in part)
        for _, batch in update.batches:
            ids = batch.inputs["source"]
            tokens = ids.numel() if count == "padded" else int((ids != 0).sum())
            assert tokens <= 60 or len(batch.rows) == 1
    assert divided
