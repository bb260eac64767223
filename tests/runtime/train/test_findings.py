"""Checking a run: everything that can be known without its data is reported at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.data.readers.split import Split
from weft.runtime.data.settings import FilterSettings
from weft.runtime.spec.check import graph_of
from weft.runtime.train.checks.effects import without_effect
from weft.runtime.train.checks.model import objective_fits
from weft.runtime.train.plan import load_run, plan_run, plan_value
from weft.runtime.train.run import Run
from weft.specs.findings import InputError, SpecError
from weft.specs.load import load
from weft.specs.reader import SHIPPED, shipped_names

from ..conftest import SMALL

Maker = Callable[..., Run]
PAGE = (Path(__file__).parents[3] / "docs/errors.md").read_text(encoding="utf-8")
TEXT = {"type": "text", "tokenizer": "tokenizer"}
COLUMNS = {"source": TEXT, "target": TEXT}
BEGIN, END = "/data/columns/source/begin", "/data/columns/source/end"
LATE = [{"over": 100}, {"from": 1}]
"""Dropout from update 101 on."""
FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"precision": "float16", "parallel": {"tensor": 2}},
        "R04",
        "/precision",
        "'parallel.tensor' to 1",
    ),
    ({"dropout": LATE}, "R08", "/dropout/1", "shorten the pieces before it"),
    (
        {"schedule": {"peak": 0.1, "pieces": [{"from": 1, "to": 0, "over": 6}]}},
        "R08",
        "/schedule/pieces/0",
        "leave 'over' of one piece out",
    ),
    ({"evaluate": {"rows": 4}}, "R01", "/evaluate/rows", "add a metric"),
    ({"evaluate": {"predict": {"beam": 1}}}, "R01", "/evaluate/predict", "add a metric"),
    (
        {"predict": {"type": "beam", "penalty": "none", "alpha": 0.9}},
        "R01",
        "/predict/alpha",
        "remove it",
    ),
    ({"predict": {"type": "beam", "diversity": 0.9}}, "R01", "/predict/diversity", "remove it"),
    ({"auxiliary": 0.5}, "R01", "/auxiliary", "remove it"),
    (
        {
            "data": {"columns": {**COLUMNS, "target": {"type": "text", "tokenizer": "words"}}},
            "tokenizers": {"words": {"type": "symbols", "spelling": "tokenizer"}},
        },
        "R01",
        "/tokenizers/words/spelling",
        "'only' to 'brackets'",
    ),
    ({"data": {"columns": {**COLUMNS, "source": {**TEXT, "begin": True}}}}, "R04", BEGIN, "remove"),
    ({"data": {"columns": {**COLUMNS, "source": {**TEXT, "end": False}}}}, "R04", END, "remove"),
    ({"start": "nowhere"}, "R02", "/start", "outputs/RUN/averaged"),
    ({"objective": "nothing.json"}, "R02", "/objective", "name a file in the run's folder"),
    (
        {"activation_checkpointing": "model.encodr.*"},
        "R03",
        "/activation_checkpointing",
        "encoder",
    ),
    (
        {"activation_checkpointing": ["model.encoder.*", "x.*"]},
        "R03",
        "/activation_checkpointing/1",
        "",
    ),
    (
        {"params": {"model": {"spec": "transformer-tiny", "params": {"layers": 0}}}},
        "P05",
        "/params/model/params/layers",
        "",
    ),
]


def changed(run: Run, change: dict[str, Any]) -> Run:
    """Return a run with some settings replaced; settings inside an object are added to it."""
    value = run.model_dump(mode="json", exclude_unset=True)
    for key, new in change.items():
        old = value.get(key)
        merged = isinstance(old, dict) and "type" not in new and key != "params"
        value[key] = {**old, **new} if merged else new
    return Run.model_validate(value)


@pytest.mark.parametrize(("change", "code", "at", "help_"), FAULTS, ids=lambda v: str(v)[:40])
def test_a_fault_has_its_place_and_help(
    change: dict[str, Any], code: str, at: str, help_: str, toy_run: Maker
) -> None:
    """One fault gives one finding."""
    run = changed(toy_run(evaluate={"every": 6, "best": "nll", "samples": 0}), change)

    [found] = plan_run(run, "run.json").findings

    assert (found.code, found.at) == (code, at)
    assert help_ in found.help


def test_a_correct_run_has_no_findings(toy_run: Maker) -> None:
    """The run of the other tests."""
    assert plan_run(toy_run(), "run.json").findings == []


@pytest.mark.integration
@pytest.mark.parametrize("name", sorted(shipped_names("runs")))
def test_shipped_runs_lack_only_their_data(name: str) -> None:
    """The corpora are not shipped."""
    run, source = load_run(name)

    assert {found.code for found in plan_run(run, source).findings} <= {"R02"}


def test_all_faults_are_told_at_once(toy_run: Maker) -> None:
    """Independent faults: each keeps its place."""
    run = toy_run(
        optimizer={"groups": [{"select": "nothing.*", "rate": 0.5}]},
        dropout=LATE,
        start="nowhere",
        activation_checkpointing="x.*",
    )

    found = {(one.code, one.at) for one in plan_run(run, "run.json").findings}

    assert found == {
        ("R03", "/optimizer/groups/0/select"),
        ("R08", "/dropout/1"),
        ("R02", "/start"),
        ("R03", "/activation_checkpointing"),
    }


def test_a_model_that_cannot_be_unpadded_is_told(toy_run: Maker) -> None:
    """Routing to experts sees all rows of a batch."""
    run = toy_run(spec="moe-transformer", params={}, padding="unpadded")

    [found] = [one for one in plan_run(run, "run.json").findings if one.code[0] == "R"]

    assert (found.code, found.at) == ("R04", "/padding")
    assert "to 'auto'" in found.help


def test_fusing_cannot_be_left_out_where_no_loss_can_be_fused(toy_run: Maker) -> None:
    """CTC is no loss by positions; its model stays padded, and the run is in float32."""
    ctc = graph_of(load(str(shipped_names("objectives")["ctc"])))

    [found] = [one for one in objective_fits(toy_run(without=["fuse"]), ctc) if "out" in one.at]

    assert (found.code, found.at) == ("R01", "/without/0")
    assert found.help == "remove it; passes that can be left out here: unpad, kernels"


def test_unpadding_may_be_left_out_where_padding_stays(toy_run: Maker) -> None:
    """A pass that would change nothing can be left out."""
    experts = {"spec": "moe-transformer", "params": {}}
    file = str(shipped_names("objectives")["translation"])
    graph = graph_of(load(file, {"model": experts}))

    found = [one for one in objective_fits(toy_run(without=["unpad"]), graph) if "out" in one.at]

    assert found == []


def test_every_missing_file_is_named(toy_run: Maker, tmp_path: Path) -> None:
    """A path outside of the root is refused like a missing file."""
    run = toy_run()
    (tmp_path / "data/train.tgt").unlink()
    (tmp_path / "data/valid.src").unlink()
    outside = {"source": ["../run.json"], "target": ["valid.tgt"]}
    data = run.data.model_copy(update={"test": {"out": Split(lines=outside)}})

    found = plan_run(run.model_copy(update={"data": data}), "run.json").findings

    assert {(one.code, one.at) for one in found} == {
        ("R02", "/data/train/lines/target/0"),
        ("R02", "/data/valid/lines/source/0"),
        ("R02", "/data/test/out/lines"),
    }


def test_a_text_file_of_another_form_is_told_before_training(
    toy_run: Maker, tmp_path: Path
) -> None:
    """The first record of each file is read: the header of a table, a line in some encoding."""
    run = toy_run()
    (tmp_path / "data/train.csv").write_text("source;target\na;b\n")
    (tmp_path / "data/valid.tgt").write_bytes("a\nb\n".encode("utf-16-le"))
    data = run.data.model_copy(
        update={"train": Split.model_validate({"csv": {"files": ["train.csv"]}})}
    )

    found = plan_run(run.model_copy(update={"data": data}), "run.json").findings

    assert {(one.code, one.at, one.evidence) for one in found} == {
        ("R02", "/data/train/csv", (f"{tmp_path / 'data/train.csv'}:1",)),
        ("R02", "/data/valid/lines", (f"{tmp_path / 'data/valid.tgt'}:1",)),
    }


def test_positions_shorter_than_the_longest_pair_are_told(tmp_path: Path, toy_run: Maker) -> None:
    """The filter does not drop validation pairs: found after the preparation."""
    learned = {"use": "learned_position@1", "params": {"max_length": 40}}
    run = toy_run(params={**SMALL, "position": learned})
    data = run.data.model_copy(update={"filter": FilterSettings(max_length=39)})
    run = run.model_copy(update={"data": data})
    for side in ("src", "tgt"):
        with (tmp_path / f"data/valid.{side}").open("a") as file:
            file.write("sun moon " * 30 + "\n")

    with pytest.raises(
        InputError, match=r"has 40 positions\n.*\n.*'max_length' of the column to at most 40"
    ) as caught:
        api.train(run, out=tmp_path / "out")

    assert not isinstance(caught.value, SpecError)
    assert not (tmp_path / "out/checkpoints").exists()


def test_a_wrong_run_is_refused_before_anything_is_written(toy_run: Maker, tmp_path: Path) -> None:
    """`weft train` and `weft.train` check the run first."""
    run = toy_run(dropout=LATE)

    with pytest.raises(SpecError, match="the piece begins after update 100"):
        api.train(run, out=tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_run_that_is_shortened_to_try_it_may_end_before_dropout(toy_run: Maker) -> None:
    """`weft train RUN --set updates=2` is how one tries a run."""
    assert plan_run(toy_run(dropout=LATE), "run.json", shortened=True).findings == []


def test_a_longer_run_is_told_that_its_rate_will_be_zero(toy_run: Maker) -> None:
    """Also if the updates were overridden, as by `--resume --set updates=40`."""
    run = toy_run(schedule={"peak": 0.1, "pieces": [{"from": 1, "to": 0, "over": 6}]})

    [finding] = plan_run(run, "run.json", shortened=True).findings

    assert (finding.code, finding.level, finding.at) == ("R08", "error", "/schedule/pieces/0")
    assert finding.problem == "the rate is 0 from update 6 on, but the run has 12"


@pytest.mark.parametrize(("shortened", "level"), [(True, "warning"), (False, "error")])
def test_a_run_that_ends_in_its_warmup_is_told(toy_run: Maker, shortened: bool, level: str) -> None:
    """With overridden updates a warning, so that any run can be tried."""
    run = toy_run(schedule={"peak": 0.1, "pieces": [{"to": 1, "over": 50}]})

    [finding] = plan_run(run, "run.json", shortened=shortened).findings

    assert (finding.code, finding.level, finding.at) == ("R08", level, "/schedule/pieces/0")


def test_weft_check_checks_runs(
    toy_run: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file is a run if it names a spec and data; the findings name it."""
    path = tmp_path / "toy.json"
    path.write_text(
        json.dumps(toy_run().model_dump(mode="json", by_alias=True, exclude_unset=True))
    )

    assert main(["check", str(path), "transformer-tiny"]) == 0
    assert "valid; trains" in capsys.readouterr().out
    assert main(["check", str(path), "--set", f"dropout={json.dumps(LATE)}", "--json"]) == 1
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["source"]) == ("R08", str(path))


def test_every_code_has_a_paragraph() -> None:
    """With cause, example and fix, as the codes of specs have."""
    described = set(re.findall(r"^### (R\d\d)$", PAGE, re.MULTILINE))

    assert described == {f"R{number:02}" for number in range(1, 11)}


def test_a_key_of_another_type_names_that_type(tmp_path: Path) -> None:
    """`momentum` belongs to other optimizers than `adam`."""
    value = json.loads(shipped_names("runs")["multi30k-en-de"].read_text(encoding="utf-8"))
    path = tmp_path / "run.json"
    path.write_text(json.dumps(value | {"optimizer": {"type": "adam", "momentum": 0.9}}))

    with pytest.raises(SpecError) as error:
        load_run(path)

    [finding] = [one for one in error.value.findings if one.code[0] == "S"]
    assert (finding.code, finding.at) == ("S03", "/optimizer/momentum")
    assert finding.help == "remove it, or set 'type' to muon or sgd"


def test_ports_that_the_objective_does_not_use_are_reported(tmp_path: Path) -> None:
    """An input that nothing fills, and an output whose parameters no loss trains."""
    spec = json.loads(shipped_names("models")["transformer-base"].read_text(encoding="utf-8"))
    spec["inputs"]["extra"] = "f[B S d_model]"
    spec["nodes"]["sum"] = {
        "use": "elementwise@1",
        "in": {"x": "source_position.y", "z": "extra"},
        "params": {"y": "x + z"},
    }
    spec["nodes"]["encoder"]["in"]["x"] = "sum.y"
    spec["nodes"]["aux"] = {"use": "linear@1", "in": {"x": "encoder.x"}, "params": {"d_out": 5}}
    spec["outputs"] |= {"aux": "aux.y", "states": "decoder.x"}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    value = json.loads(shipped_names("runs")["multi30k-en-de"].read_text(encoding="utf-8"))
    value |= {"params": {"model": {"spec": "spec.json"}}}
    (tmp_path / "run.json").write_text(json.dumps(value))
    run, source = load_run(tmp_path / "run.json")

    found = {each.code: each.problem for each in plan_run(run, source).findings}

    assert found["W01"] == "port 'extra' of model is not wired"
    assert "2,565 parameters do not train" in found["O04"]


def test_a_search_may_lack_the_column_of_its_source() -> None:
    """The settings of a column in place of the columns: both are reported as wrong columns."""
    value = json.loads((SHIPPED / "runs/multi30k-en-de.json").read_text(encoding="utf-8"))
    value["data"]["columns"] = {"type": "text", "tokenizer": "tokenizer"}

    findings = plan_value(value, "run.json").findings

    assert {each.at for each in findings if each.at != "/data/root"} == {
        "/data/columns/type",
        "/data/columns/tokenizer",
    }


SORTED = {"tokens": 5}
"""A batch of one or two of the sentences of the toy run, so that an epoch has many."""


@pytest.mark.parametrize(
    ("batch", "accumulate", "at"),
    [
        (SORTED, 1, "/accumulate"),
        ({**SORTED, "pool": 150}, 1, "/batch/pool"),
        ({**SORTED, "count": "real"}, 1, "/accumulate"),
        (SORTED, 2, ""),
        ({**SORTED, "pool": 20}, 1, ""),
        ({**SORTED, "pool": 1, "count": "real"}, 1, ""),
        ({"tokens": 200}, 1, ""),
    ],
)
def test_updates_of_one_length_are_a_warning(
    toy_run: Maker, batch: dict[str, Any], accumulate: int, at: str
) -> None:
    """Where a batch is an update and one of a hundred or more that are sorted together."""
    plan = plan_run(toy_run(batch=batch, accumulate=accumulate), "run.json")

    assert [(finding.code, finding.at) for finding in plan.warnings] == (
        [("R07", at)] if at else []
    )
    assert not plan.errors


def test_real_tokens_need_a_model_without_padding(toy_run: Maker) -> None:
    """Otherwise a batch would exceed the memory that the limit protects."""
    batch = {"tokens": 200, "pool": 1, "count": "real"}

    [finding] = plan_run(toy_run(batch=batch, without=("unpad",)), "run.json").findings

    assert (finding.code, finding.level, finding.at) == ("R04", "error", "/batch/count")


def test_counts_of_tokens_have_no_effect_on_rows_of_one_length() -> None:
    """Blocks of a language model are full, and images have no tokens."""
    for name, column in (
        ("language-model-multi30k", {"data.columns.text.block": 64}),
        ("image-classification-digits", {}),
    ):
        run, _ = load_run(name, {**column, "batch.pool": 1})
        findings = [finding for finding in without_effect(run) if finding.at == "/batch/pool"]
        assert [finding.code for finding in findings] == ["R01"]
