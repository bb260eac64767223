"""The plan of a run: made once, without torch, for all that need it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import weft
from weft.graphs.checker import check as checker
from weft.runtime.cli.main import main
from weft.runtime.train.plan import plan_run
from weft.runtime.train.run import Run
from weft.specs.findings import SpecError
from weft.specs.form import Spec

Checked = Counter[str]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Return how often each spec was type-checked, by its name."""
    counts: Checked = Counter()
    explore = checker.explore

    def counting(spec: Spec, *more: object, **options: object) -> checker.Explored:
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
