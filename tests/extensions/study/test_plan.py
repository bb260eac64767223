"""Tests of the plan of a study: rows, costs, findings, and the identity of jobs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.extensions.study.loading import load_study
from weft.extensions.study.planning.identity import DataDigests
from weft.extensions.study.planning.match import solve
from weft.extensions.study.planning.plan import JobPlan, plan_study
from weft.extensions.study.procedure import Match
from weft.plugin import deployed_graph
from weft.runtime.data.settings import FileTokenizerSettings
from weft.specs.findings import InputError
from weft.specs.text_edits import edited

from .conftest import SMALL, SWIGLU, Writer

pytestmark = pytest.mark.integration

MATCH = {"param": "d_ff"}
SMALL_MODEL = {"spec": "transformer-tiny", "params": SMALL}
TAUGHT = {"objective": "distillation", "params": {"model": SMALL_MODEL, "teacher": SMALL_MODEL}}
"""Settings of a run whose losses need a teacher, which its checkpoints do not have."""


def plan(path: Path, speed: float | None = None) -> JobPlan:
    """Return the plan of a study file."""
    study, source = load_study(path)
    return plan_study(study, source, None if speed is None else lambda _: speed)


def keys(made: JobPlan) -> dict[str, dict[int, str]]:
    """Return the keys of the jobs of each row."""
    assert made.errors == []
    return {row.name: row.keys for row in made.rows}


def test_rows_are_costed_and_their_changes_described(toy_study: Writer) -> None:
    """Gated layers have a third matrix of 16 x 32; `decoder` and `encoder` have one layer."""
    made = plan(toy_study())

    base, swiglu, smooth = made.rows
    assert (base.name, swiglu.name, smooth.name) == ("baseline", "swiglu", "no-smoothing")
    added = 2 * (16 * 32 + 32)  # one more matrix with its bias in each of two layers
    assert swiglu.costs.parameters - base.costs.parameters == added
    assert any("gated_feed_forward@1" in line for line in made.changes(swiglu))
    assert made.changes(smooth) == ["~ cross_entropy  label_smoothing 0.1 -> 0.0"]
    assert made.changes(base) == []


def test_match_makes_rows_as_large_as_the_baseline(toy_study: Writer) -> None:
    """Per layer, 3 x 16 d + 2 d + 16 parameters equal 2 x 16 x 32 + 32 + 16 at d = 21.1."""
    made = plan(toy_study(match={**MATCH, "tolerance": 0.05}))

    swiglu = made.rows[1]
    assert swiglu.solution is not None
    assert swiglu.solution.value == 21
    assert made.rows[2].solution is None  # it is as large already


@pytest.mark.parametrize(("wanted", "multiple", "value"), [(100, 1, 33), (100, 8, 32), (7, 4, 4)])
def test_the_nearest_multiple_is_found(wanted: int, multiple: int, value: int) -> None:
    """For a size of 3 n + 1: 33 gives 100, 32 gives 97, 4 gives 13, the smallest multiple."""
    match = Match(param="d", multiple=multiple, tolerance=1.0)

    assert solve(match, wanted, lambda number: 3 * number + 1).value == value


def test_a_size_that_cannot_be_reached_is_an_error() -> None:
    """A param without effect, and steps that are too large."""
    with pytest.raises(InputError, match="does not change the parameters"):
        solve(Match(param="d"), 100, lambda _: 7)
    with pytest.raises(InputError, match="does not change the parameters"):
        solve(Match(param="d", tolerance=0.1), 100, lambda _: 105)  # it must stay as it is
    with pytest.raises(InputError, match="the nearest, 8, gives 64"):
        solve(Match(param="d", multiple=8), 100, lambda number: number * number)


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "dead selector": (
        {"rows": {"a": {"patch": [{"select": "**/g", "remove": True}]}}},
        "X01",
        "/rows/a/patch/0/select",
    ),
    "unknown param": ({"rows": {"a": {"params": {"hedas": 1}}}}, "P04", "/rows/a/params/hedas"),
    "wrong value": ({"rows": {"a": {"params": {"heads": 3}}}}, "E05", "/rows/a"),
    "unknown spec": ({"rows": {"a": {"extends": "gpt3"}}}, "Y01", "/rows/a/extends"),
    "param that is not set": ({"rows": {"a": {"unset": ["d_k"]}}}, "Y01", "/rows/a/unset"),
    "wrong setting": ({"rows": {"a": {"set": {"updates": 0}}}}, "S04", "/rows/a/set/updates"),
    "setting inside a number": (
        {"rows": {"a": {"set": {"updates.x": 0}}}},
        "P04",
        "/rows/a/set/updates.x",
    ),
    "the same graph": ({"rows": {"a": {"params": {"heads": 2}}}}, "Y02", "/rows/a"),
    "over budget": (
        {"rows": {"a": {"params": {"d_ff": 320}}}, "budget": {"seconds": 1.0}},
        "Y03",
        "/rows/a",
    ),
    "match with an own value": (
        {"rows": {"a": {"params": {"d_ff": 64}}}, "match": MATCH},
        "Y04",
        "/rows/a",
    ),
    "match without effect": (
        {"rows": {"a": {"params": {"layers": 2}}}, "match": {"param": "heads"}},
        "Y04",
        "/rows/a",
    ),
    "requirement": (
        {
            "rows": {"a": {"params": {"d_ff": 64}}},
            "require": [{"quantity": "parameters", "within": 0.01}],
        },
        "Y05",
        "/rows/a",
    ),
    "one seed": ({"seeds": [1]}, "Y06", "/seeds"),
    "unknown test set": ({"measure": {"tests": ["tyo"]}}, "Y07", "/measure/tests/0"),
    "seed in settings": ({"set": {"seed": 3}}, "Y07", "/set/seed"),
    "seed in a grid": (
        {"grid": {"factors": {"s": {"set": "seed", "values": [3, 4]}}}},
        "Y07",
        "/grid/factors/s/set",
    ),
    "updates twice": (
        {"budget": {"updates": 3}, "set": {"updates": 3}},
        "Y07",
        "/set/updates",
    ),
    "no predictions": (
        {"settings": {"predict": None, "answers": None}},
        "Y07",
        "/measure/metrics",
    ),
    "no mean": (
        {"settings": {"checkpoint": {"every": 2, "average": 0}}},
        "Y07",
        "/measure/checkpoint",
    ),
    "unknown setting of the predictor": (
        {"measure": {"predict": {"beem": 5}}},
        "Y07",
        "/measure/predict",
    ),
    "wrong setting of the predictor": (
        {"measure": {"predict": {"groups": 3}}},
        "Y07",
        "/measure/predict",
    ),
    "column of a metric": (
        {"measure": {"metrics": ["bleu:nope"]}},
        "R04",
        "/measure/metrics/0/column",
    ),
    "metric of another type": ({"measure": {"metrics": ["accuracy"]}}, "R04", "/measure/metrics/0"),
    "two metrics of one name": (
        {"measure": {"metrics": ["bleu", {"type": "bleu", "tokenize": "char"}]}},
        "R04",
        "/measure/metrics/1",
    ),
    "unknown score": ({"measure": {"metrics": ["nll:foo"]}}, "R04", "/measure/metrics/0"),
    "a loss of the training": (
        {"settings": TAUGHT, "measure": {"metrics": ["bleu", "loss"]}},
        "R04",
        "/measure/metrics/1",
    ),
    "losses of the training alone": (
        {"settings": {**TAUGHT, "predict": None, "answers": None}, "measure": {}},
        "R04",
        "/measure/metrics",
    ),
    "a search by a loss of the training": (
        {
            "settings": TAUGHT,
            "search": {
                "factors": {"r": {"set": "schedule.peak", "values": [0.1, 0.2]}},
                "trials": 2,
            },
        },
        "R04",
        "/search/metric",
    ),
    "unknown run": ({"run": "rnu"}, "Y01", "/run"),
    "run of another format": ({"run": {"format": 2, "name": "x"}}, "Y01", "/run"),
    "wrong base run": ({"settings": {"updates": 0}}, "S04", "/run/updates"),
    "wrong setting of the study": ({"set": {"updates": 0}}, "S04", "/set/updates"),
    "misspelled setting of the study": (
        {"set": {"checkpoint.evry": 3}},
        "S03",
        "/set/checkpoint.evry",
    ),
    "no such root": ({"root": "/nowhere"}, "R02", "/root"),
    "misspelled first key of a setting": (
        {"rows": {"a": {"set": {"optimiser.clip": 1.0}}}},
        "S03",
        "/rows/a/set/optimiser.clip",
    ),
    "unknown objective": ({"rows": {"a": {"objective": "trnslation"}}}, "R02", "/rows/a/objective"),
    "unknown param of a block": (
        {"rows": {"a": {"patch": [{"select": "**/f[use=attention@1]", "set": {"params.x": 1}}]}}},
        "N04",
        "/rows/a/patch/0/set/params.x",
    ),
    "unknown param of a level": (
        {"grid": {"factors": {"h": {"levels": {"x": {"params": {"hedas": 1}}}}}}},
        "P04",
        "/grid/factors/h/levels/x/params/hedas",
    ),
    "match of an unknown param": ({"match": {"param": "d_fff"}}, "P04", "/match/param"),
    "match of a row with an unknown param": (
        {"rows": {"swiglu": {**SWIGLU, "match": {"param": "d_fff"}}}},
        "P04",
        "/rows/swiglu/match/param",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_found_before_anything_trains(toy_study: Writer, name: str) -> None:
    """Each finding has a code, the place in the study, and help."""
    changes, code, at = BAD[name]
    path = toy_study(**changes)
    study, source = load_study(path)
    speed = None
    if name == "over budget":  # such that only the row with ten times the work is too slow
        base = plan(path).rows[0].costs.training_flops
        speed = 1.1 * base

    made = plan(path, speed)

    found = {one.code: one for one in made.findings}
    assert code in found, [one.render() for one in made.findings]
    assert found[code].at == at
    assert found[code].source == source
    assert found[code].help
    del study


def test_a_mistake_of_several_rows_is_one_finding(toy_study: Writer) -> None:
    """A study of many rows would else repeat it for each of them."""
    grid = {"factors": {"h": {"param": "hedas", "values": [1, 2, 4]}}}

    [param] = plan(toy_study(grid=grid)).errors
    [test] = plan(toy_study(measure={"tests": ["tyo"]})).errors

    assert param.at == "/grid/factors/h"
    assert param.evidence[0].startswith("in the row 'h=1'")
    assert test.evidence == ("in the row 'baseline'",)


def test_a_row_with_other_test_sets_alone_is_an_error(toy_study: Writer) -> None:
    """It shares the training, so its own test sets would not be measured."""
    test = {"toy": {"lines": {"source": ["valid.src"], "target": ["valid.tgt"]}}}

    [found] = plan(toy_study(rows={"a": {"set": {"data.test": test}}})).errors

    assert (found.code, found.at) == ("Y02", "/rows/a")
    assert "except for its test sets" in found.problem


def test_budgets_set_the_updates(toy_study: Writer) -> None:
    """Twice the FLOPs of a row give it twice the updates; a larger row gets fewer."""
    cosine = {
        "schedule": {"peak": 0.01, "pieces": [{"to": 1, "over": 1}, {"shape": "cosine", "to": 0}]}
    }
    base = plan(toy_study(settings=cosine)).rows[0]
    wanted = 2.01 * base.costs.training_flops

    made = plan(toy_study(settings=cosine, budget={"flops": wanted}))

    assert [row.run.updates for row in made.rows] == [8, 7, 8]
    tokens = plan(toy_study(settings=cosine, budget={"tokens": 3 * base.costs.tokens}))
    assert {row.run.updates for row in tokens.rows} == {12}


def test_a_budget_that_is_too_small_for_the_schedule_is_named(toy_study: Writer) -> None:
    """The finding is about a warmup of 5 and a total that is in no file."""
    warm = {
        "schedule": {"peak": 0.01, "pieces": [{"to": 1, "over": 5}, {"shape": "cosine", "to": 0}]},
        "updates": 9,
    }

    [found, *_] = plan(toy_study(settings=warm, budget={"tokens": 500})).errors

    assert found.at.endswith("/schedule/pieces/0")
    assert any("the budget of the study gives the run" in one for one in found.evidence)


def test_another_spec_keeps_the_params_of_the_base_run(toy_study: Writer) -> None:
    """Except those that the row unsets."""
    row = {"extends": "transformer-swiglu", "unset": ["d_ff"], "params": {"d_ff": 24}}
    made = plan(toy_study(rows={"a": row}))

    assert made.errors == []
    model = made.rows[1].value["params"]["model"]
    assert model["params"] == {**SMALL, "d_ff": 24}
    assert made.rows[1].costs.parameters != made.rows[0].costs.parameters


NARROW = {"d_model": 16, "heads": 2, "layers": 1}
"""Params of a run without `d_ff`, which is 256 in transformer-tiny, and 2048 in its parent."""


@pytest.mark.parametrize(
    "extends",
    ["transformer-prenorm", ["transformer-prenorm", "transformer-rmsnorm"]],
    ids=["one variant", "two variants"],
)
def test_a_row_of_variants_keeps_the_params_of_the_base_spec(
    toy_study: Writer, extends: str | list[str]
) -> None:
    """They extend the spec that the base spec extends, so their patches apply to it."""
    run = {"params": {"model": {"spec": "transformer-tiny", "params": NARROW}}}

    made = plan(toy_study(settings=run, rows={"row": {"extends": extends}}))

    assert [one for one in made.findings if one.code == "Y09"] == []
    _, row = made.rows
    assert deployed_graph(row.graph).params["d_ff"] == 256
    changed = "\n".join(made.changes(row))
    assert "order" in changed
    assert ("rms_norm" in changed) == isinstance(extends, list)


def test_what_a_variant_sets_itself_goes_before_the_base_spec(toy_study: Writer) -> None:
    """The row's own params go before both."""
    variant = {"format": 1, "name": "wide", "extends": "transformer-base", "params": {"d_ff": 64}}
    run = {"params": {"model": {"spec": "transformer-tiny", "params": NARROW}}}
    rows = {"a": {"extends": "wide"}, "b": {"extends": "wide", "params": {"d_ff": 32}}}
    path = toy_study(settings=run, rows=rows)
    (path.parent / "wide.json").write_text(json.dumps(variant), encoding="utf-8")

    _, *made = plan(path).rows

    assert [deployed_graph(row.graph).params["d_ff"] for row in made] == [64, 32]


def test_variants_that_do_not_combine_are_reported_in_their_row(toy_study: Writer) -> None:
    """With the place of the one that differs."""
    rows = {
        "a": {"extends": ["transformer-prenorm", "gnmt-small"]},
        "b": {"extends": ["transformer-prenorm", "transformer-rmsnrm"]},
    }

    errors = plan(toy_study(rows=rows)).errors

    assert [(one.code, one.at) for one in errors] == [
        ("S07", "/rows/a/extends/1"),
        ("Y01", "/rows/b/extends/1"),
    ]


def test_another_spec_that_changes_the_size_of_a_row_is_warned_of(toy_study: Writer) -> None:
    """It does not extend what the base spec extends, so its own default counts."""
    run = {"params": {"model": {"spec": "transformer-tiny", "params": NARROW}}}
    other = weft.load("transformer-base").form.model_dump(by_alias=True, exclude_unset=True)
    path = toy_study(settings=run, rows={"other": {"extends": "other"}})
    other["params"]["d_ff"] = 260
    (path.parent / "other.json").write_text(json.dumps(other), encoding="utf-8")

    [warning] = [one for one in plan(path).findings if one.code == "Y09"]

    assert (warning.level, warning.at) == ("warning", "/rows/other/extends")
    assert '"d_ff": 256' in warning.help


def test_rows_are_checked_beside_a_base_run_with_mistakes(toy_study: Writer) -> None:
    """The mistakes of the base are reported once, and those of each row at the row."""
    rows = {"a": {"extends": "gpt33"}, "b": {"params": {"hedas": 2}}, "c": {"set": {"updats": 3}}}

    errors = plan(toy_study(settings={"accumulate": 0, "answers": "no"}, rows=rows)).errors

    assert [one.at.removeprefix("/run") for one in errors] == [
        "/accumulate",
        "/answers",
        "/rows/a/extends",
        "/rows/b/params/hedas",
        "/rows/c/set/updats",
    ]


def test_a_mistake_in_a_row_has_the_fix_that_it_has_in_a_spec(toy_study: Writer) -> None:
    """Edits of the study, also where a param or a patch is inside a larger value."""
    attention = "decoder.*.self_attention/f"
    position = {"use": "sinusoidal_positon@1"}
    rows = {
        "a": {"params": {"hedas": 4}},
        "b": {"patch": [{"select": attention, "set": {"params.hedas": 4}}]},
        "c": {"set": {"params.model.params.layrs": 2}},
        "d": {"extends": "transformer-prenrm"},
        "e": {"patch": [{"select": "decoder.*.self_atention/f", "set": {"params.heads": 4}}]},
        "f": {"params": {"position": position}},
        "g": {"unset": ["layrs"]},
    }

    path = toy_study(rows=rows)
    text = path.read_text(encoding="utf-8")
    for finding in plan(path).errors:
        assert finding.fix is not None, finding
        text = edited(text, finding.fix.edits)

    fixed = json.loads(text)["rows"]
    assert fixed["a"]["params"] == {"heads": 4}
    assert fixed["b"]["patch"][0]["set"] == {"params.heads": 4}
    assert fixed["c"]["set"] == {"params.model.params.layers": 2}
    assert fixed["d"]["extends"] == "transformer-prenorm"
    assert fixed["e"]["patch"][0]["select"] == attention
    assert fixed["f"]["params"]["position"]["use"] == "sinusoidal_position@1"
    assert fixed["g"]["unset"] == ["layers"]


def test_keys_depend_on_what_is_trained_and_on_nothing_else(
    toy_study: Writer, tmp_path: Path
) -> None:
    """Names, metrics and test sets change no key; the seed, settings, graph and data do."""
    before = keys(plan(toy_study()))
    same = keys(
        plan(
            toy_study(
                rows={"gated": SWIGLU, "no-smoothing": {"set": {"params.label_smoothing": 0.0}}},
                measure={"metrics": ["ter"], "tests": []},
                doc="other words",
            )
        )
    )

    assert len({key for row in before.values() for key in row.values()}) == 6
    assert same["gated"] == before["swiglu"]
    assert same["baseline"] == before["baseline"]
    other = keys(plan(toy_study(set={"batch.tokens": 201})))
    assert not set(other["baseline"].values()) & set(before["baseline"].values())
    train = tmp_path / "study/train.src"
    os.utime(train, (1, 1))
    assert keys(plan(toy_study())) == before  # the time of a file does not count
    assert keys(plan(toy_study(set={"without": ["fuse"]}))) != before
    left = [
        keys(plan(toy_study(set={"without": names})))
        for names in (["unpad", "fuse"], ["fuse", "unpad"])
    ]
    assert left[0] == left[1] != before
    train.write_text(train.read_text().replace("sun", "moon"))
    assert keys(plan(toy_study()))["baseline"] != before["baseline"]


def test_the_contents_of_a_tokenizer_are_part_of_the_key(toy_study: Writer, tmp_path: Path) -> None:
    """A file that the run names, and that another text may have trained."""
    run = plan(toy_study()).rows[0].run
    tokenizer = FileTokenizerSettings(path="own.model")
    named = run.model_copy(update={"tokenizers": {"text": tokenizer}})
    found = []
    for content in ("one", "another"):
        (tmp_path / "study/own.model").write_text(content)
        found.append(DataDigests().others(named))

    assert found[0] != found[1]
    assert len(found[0]) == 1


def test_equal_files_are_equal_examples_under_other_names(toy_study: Writer) -> None:
    """A row may name its own copy of the validation data."""
    folder = toy_study().parent
    for side in ("src", "tgt"):
        shutil.copy(folder / f"valid.{side}", folder / f"copy.{side}")
        (folder / f"other.{side}").write_text("sun\n")
    rows = {
        name: {
            "set": {"data.valid": {"lines": {"source": [f"{name}.src"], "target": [f"{name}.tgt"]}}}
        }
        for name in ("copy", "other")
    }
    made = plan(toy_study(rows=rows))

    base, copied, other = (DataDigests().examples(row.run, "valid") for row in made.rows)

    assert base == copied != other


def test_the_weights_of_a_teacher_are_part_of_the_key(toy_study: Writer, tmp_path: Path) -> None:
    """They determine what is learned, though they are not in the graph."""
    path = toy_study()
    study, source = load_study(path)
    run = plan_study(study, source).rows[0].run
    file = tmp_path / "teacher/weights.safetensors"
    file.parent.mkdir()
    taught = run.model_copy(update={"params": {"teacher": {"checkpoint": str(file.parent)}}})
    found = []
    for content in ("one", "another"):
        file.write_text(content)
        found.append(DataDigests().others(taught))

    assert DataDigests().others(run) == []
    assert found[0] != found[1]


def test_the_demo_study_has_no_mistakes(tmp_path: Path) -> None:
    """Every row of it can train; only the data of the user is missing."""
    for part in ("train", "valid", "test"):
        for side in ("en", "de"):
            (tmp_path / f"{part}.{side}").write_text("one\ntwo\n")
    study, source = load_study("study-demo", {"run.data.root": str(tmp_path)})

    made = plan_study(study, source, lambda _: 2e10)

    assert [one.render() for one in made.findings] == []
    # Per layer, 194 d + 64 parameters equal 2 x 64 x 128 + 128 + 64 at d = 85.1.
    swiglu = next(row for row in made.rows if row.name == "swiglu")
    assert swiglu.solution is not None
    assert swiglu.solution.value == 85


def test_the_help_for_missing_data_names_the_key_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study has `root`, where a run has `data.root`."""
    monkeypatch.chdir(tmp_path)

    study, source = load_study("parser-curves")
    helps = {one.help for one in plan_study(study, source, lambda _: 2e10).findings}

    assert any("--set root=DIR" in one for one in helps)
    assert not any("data.root" in one for one in helps)


def test_every_code_of_studies_has_a_paragraph() -> None:
    """With cause, example and way out, and no other has one."""
    root = Path(__file__).parents[3]
    page = (root / "docs/errors.md").read_text(encoding="utf-8")
    sources = [one.read_text() for one in (root / "extensions/study").rglob("*.py")]
    paragraphs = re.findall(r"^### (Y\d\d)[^\n]*\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)

    used = set(re.findall(r'"(Y\d\d)"', "".join(sources)))
    assert {code for code, _ in paragraphs} == used == {f"Y{n:02}" for n in range(1, 14)}
    for _, text in paragraphs:
        assert 0 < text.find("Example: ") < " ".join(text.split()).find("Way out: ")


@pytest.mark.parametrize(
    "changes",
    [
        {"trials": 10, "pruner": "none"},
        {"trials": 9, "seeds": 2},
        {"trials": 10, "seconds": 0.5, "pruner": "none"},
    ],
)
def test_a_search_has_the_cost_of_its_trials(toy_study: Writer, changes: dict[str, Any]) -> None:
    """Each trial trains its seeds; after the limit, the trial that has begun goes on."""
    search = {"factors": {"heads": {"param": "heads", "values": [1, 2, 4]}}, **changes}
    study = weft.Study(toy_study(search=search), gigaflops=0.01)
    once = study.plan().rows[0].seconds
    whole = once * changes.get("seeds", 1) * changes["trials"]
    if "seconds" in changes:
        whole = 0.5 + once

    pruned = "" if "pruner" in changes else ", less with pruning"
    expected = f"{changes['trials']} trials, at most {whole:.0f} s at the baseline's speed{pruned}"
    assert study.plan().search == expected
    assert weft.Study(toy_study(), gigaflops=0.01).plan().search == ""


def test_a_study_is_checked_without_torch(toy_study: Writer) -> None:
    """Only a measurement of the peak needs it; plots, statistics and reports are not loaded."""
    code = (
        "import sys; from weft.runtime.cli.main import main;"
        " code = main(['study', 'check', sys.argv[1], '--speed', '50']);"
        " sys.exit(code or bool({'torch', 'matplotlib', 'scipy.special'} & {*sys.modules}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(toy_study())], stdout=subprocess.DEVNULL, check=False
    )

    assert done.returncode == 0
