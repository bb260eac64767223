"""What is known of a run before it trains: its plan, its complete form, its costs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.graphs.checker import check as checker
from weft.graphs.ir.canonical import fingerprint
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main
from weft.runtime.train.checks.effects import batch_advice
from weft.runtime.train.costs import FILL, project
from weft.runtime.train.objective import Objective
from weft.runtime.train.plan import complete, load_run, plan_run, run_of
from weft.runtime.train.run import Run
from weft.specs.findings import SpecError
from weft.specs.form import SpecForm
from weft.specs.reader import shipped_names

Checked = Counter[str]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Return how often each spec was type-checked, by its name."""
    counts: Checked = Counter()
    explore = checker.explore

    def counting(spec: SpecForm, *more: object, **options: object) -> checker.Explored:
        counts[spec.name] += 1
        return explore(spec, *more, **options)  # type: ignore[arg-type]

    for module in [module for name, module in sys.modules.items() if name.startswith("weft.")]:
        if getattr(module, "explore", None) is explore:
            monkeypatch.setattr(module, "explore", counting)
    return counts


def written(run: Run, path: Path) -> Path:
    """Write a run to a file."""
    path.write_text(json.dumps(run.model_dump(mode="json", by_alias=True)), encoding="utf-8")
    return path


@pytest.mark.integration
def test_a_training_type_checks_each_graph_once(
    toy_run: Callable[..., Run], tmp_path: Path, checked: Checked
) -> None:
    """One graph is checked, trained, validated and saved; one feeds validations."""
    watch = {"every": 1, "metrics": ["bleu"], "best": "nll"}
    weft.train(toy_run(updates=2, evaluate=watch), out=tmp_path / "run")

    assert checked == {"translation": 1, "transformer-tiny": 1, "translation-inputs": 1}


def test_a_check_of_a_run_type_checks_its_objective_once(
    toy_run: Callable[..., Run], tmp_path: Path, checked: Checked
) -> None:
    """Whether prediction can feed the model follows from the same graph."""
    assert main(["check", str(written(toy_run(), tmp_path / "toy.json"))]) == 0

    assert checked == {"translation": 1, "transformer-tiny": 1}


def test_rows_of_a_study_share_an_objective(
    toy_run: Callable[..., Run], tmp_path: Path, checked: Checked
) -> None:
    """Rows that change other settings than the model are type-checked as one."""
    written(toy_run(), tmp_path / "toy.json")
    study = {
        "format": 1,
        "name": "rates",
        "run": "toy.json",
        "rows": {name: {"set": {"seed": seed}} for name, seed in (("two", 2), ("three", 3))},
        "seeds": [1, 2],
    }
    path = tmp_path / "study.json"
    path.write_text(json.dumps(study), encoding="utf-8")

    main(["study", "check", str(path)])

    assert checked == {"translation": 1, "transformer-tiny": 1}


def test_a_wrong_run_has_no_required_objective(toy_run: Callable[..., Run]) -> None:
    """Nothing trains from a plan with errors, and all of them are raised."""
    plan = plan_run(toy_run(objective="translatoin", dropout=[{"over": 10**9}, {"from": 1}]), "toy")

    with pytest.raises(SpecError) as caught:
        plan.required()

    assert {finding.at for finding in caught.value.findings} == {"/objective", "/dropout/1"}


@pytest.mark.integration
def test_a_run_is_checked_without_torch(toy_run: Callable[..., Run], tmp_path: Path) -> None:
    """`weft check RUN` is as quick to start as `weft check SPEC`."""
    path = written(toy_run(), tmp_path / "toy.json")
    code = (
        "import sys; from weft.runtime.cli.main import main; code = main(['check', sys.argv[1]]);"
        " sys.exit(code or 'torch' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)

    assert done.returncode == 0


RUNS = sorted(name for name in shipped_names("runs") if "distillation" not in name)
"""Those that need no checkpoint."""


@pytest.mark.integration
@pytest.mark.parametrize("name", RUNS)
def test_a_complete_run_is_the_same_run(name: str) -> None:
    """It is read again, has the same settings, objective and findings, and all keys."""
    run, source = load_run(name)

    value = complete(run, source)

    again = run_of(value, source)
    assert again.model_copy(update={"params": run.params}) == run
    assert fingerprint(Objective.of(again, source).graph) == fingerprint(
        Objective.of(run, source).graph
    )
    assert plan_run(again, source).findings == plan_run(run, source).findings
    assert {"optimizer", "batch", "seed", "threads", "schedule", "params"} <= value.keys()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return what `weft expand` prints."""
    assert main(["expand", *arguments]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


@pytest.mark.integration
def test_params_of_the_objective_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own as its file has them, those of the run as they are set; sizes follow the columns."""
    value = printed(capsys, "multi30k-en-de", "--set", "params.label_smoothing=0.2")

    assert value["params"]["label_smoothing"] == 0.2
    assert value["params"]["spread"] == "vocabulary"
    assert (
        value["params"]["model"]
        == {"spec": "transformer-tiny", "params": {}}
        | (load_run("multi30k-en-de")[0].params["model"])
    )
    assert not {"vocab", "source_vocab"} & value["params"].keys()


@pytest.mark.integration
def test_a_printed_run_trains_to_the_same_bits(
    toy_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two updates of a run, and of what was printed of it."""
    value = toy_run(updates=2).model_dump(mode="json", by_alias=True, exclude_unset=True)
    (tmp_path / "run.json").write_text(json.dumps(value))
    copy = printed(capsys, str(tmp_path / "run.json"))
    (tmp_path / "copy.json").write_text(json.dumps(copy))

    weights = []
    for name in ("run", "copy"):
        weft.train(tmp_path / f"{name}.json", out=tmp_path / name)
        weights.append(open_checkpoint(tmp_path / name / "best").weights)

    assert len(copy) > len(value)
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[1][name], tensor) for name, tensor in weights[0].items())


@pytest.mark.integration
def test_the_run_of_a_checkpoint_is_expanded(
    toy_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file `run.json` is a run like any other."""
    weft.train(toy_run(updates=2), out=tmp_path / "out")

    assert printed(capsys, str(tmp_path / "out/best/run.json"))["updates"] == 2


@pytest.mark.integration
def test_a_run_has_no_provenance(capsys: pytest.CaptureFixture[str]) -> None:
    """The option is for specs, which inherit."""
    assert main(["expand", "demo", "--provenance"]) == 2
    assert "a run inherits nothing" in capsys.readouterr().err


def test_hours_are_tokens_over_speed(toy_run: Callable[..., Run]) -> None:
    """12 updates of 4 batches of 200 tokens a side, at 100 tokens/s; one layer by hand."""
    run = toy_run()
    found = project(run, Objective.of(run, "toy").graph, {"S": 3, "T": 5})
    tokens = 12 * 4 * 200 * 2 * FILL
    width, wide, words = 16, 32, 40
    sides = sum(8 * n * width**2 + 4 * n**2 * width + 4 * n * width * wide for n in (3, 5))
    cross = 4 * (3 + 5) * width**2 + 4 * 3 * 5 * width
    head = 2 * 5 * width * words

    assert found.tokens == pytest.approx(tokens)
    assert found.seconds(100) == pytest.approx(tokens / 100)
    assert found.flops_per_token == pytest.approx(3 * (sides + cross + head) / 8)
    assert found.flops == pytest.approx(tokens * found.flops_per_token)
    # At an MFU of 0.5 with a peak of 1e9 FLOP/s on two devices.
    assert found.speed(1e9, 0.5, 2) == pytest.approx(1e9 / found.flops_per_token)


def test_the_command_prints_hours(capsys: pytest.CaptureFixture[str]) -> None:
    """At a given speed and at MFU values of a given peak FLOP/s, as text and as JSON."""
    ask = [
        "cost",
        "wmt14-en-de-base",
        "--project",
        "--speed",
        "140000",
        "--devices",
        "8",
        "--peak",
        "700",
    ]

    assert main([*ask, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tokens_per_update"] == pytest.approx(50_400)
    assert printed["rows"][0]["hours"] == pytest.approx(10.0)
    assert len(printed["rows"]) == 6
    assert main(ask) == 0
    text = capsys.readouterr().out
    assert "63,082,496 parameters, 100,000 updates of 50,400 tokens" in text
    assert "10.0          80.0" in text


@pytest.mark.parametrize(
    "wrong",
    [["--speed", "0"], ["--devices", "0"], ["--peak", "-1"]],
)
def test_values_that_are_not_positive_are_refused(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They are wrong on the command line, and nothing is divided by them."""
    assert main(["cost", "wmt14-en-de-base", "--project", *wrong]) == 2
    assert f"Invalid value for '{wrong[0]}': it must be" in capsys.readouterr().err


def test_a_projection_is_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Options for specs and missing files raise."""
    assert main(["cost", "wmt14-en-de-base", "--project", "--measure"]) == 2
    assert "'--measure': it has no effect with --project" in capsys.readouterr().err
    assert main(["cost", "wmt14-en-de-base", "--devices", "8"]) == 2
    assert "'--devices': it has an effect only with --project" in capsys.readouterr().err
    assert main(["cost", str(tmp_path / "no.json"), "--project"]) == 1


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("tokens", "accumulate", "processes", "said"),
    [
        (3500, 8, 1, "'batch.tokens' 28000 and 'accumulate' 1 "),
        (3500, 8, 4, "'batch.tokens' 7000 and 'accumulate' 4 "),
        (3500, 24, 1, "'batch.tokens' 28000 and 'accumulate' 3 "),
        (3500, 8, 8, ""),
        (20000, 8, 1, ""),
        (3500, 1, 1, ""),
    ],
)
def test_small_batches_on_a_gpu_get_advice_with_the_same_tokens(
    tokens: int, accumulate: int, processes: int, said: str, toy_run: Callable[..., Run]
) -> None:
    """Batches of at most 32,768 tokens, an equal number for each process."""
    run = toy_run(batch={"tokens": tokens}, accumulate=accumulate)

    assert said in batch_advice(run, CUDA, processes)
    assert bool(batch_advice(run, CUDA, processes)) == bool(said)
    assert not batch_advice(run, CPU, processes)


def test_a_run_without_a_time_axis_gets_no_advice_on_tokens() -> None:
    """Its batches have rows and no tokens, so the setting would be an error."""
    run, _ = load_run("image-classification-digits", {"accumulate": 8})

    assert not batch_advice(run, CUDA, 1)
