"""Import: tensors are mapped as in the table, and none is lost or missing."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from safetensors.torch import save_file
from weft.extensions.interop.importing.config import read_object
from weft.extensions.interop.importing.table import ImportTable, load_table
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.checkpoint.mapping.line import Line
from weft.runtime.cli.main import main
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.tokenizer import train_tokenizer
from weft.specs.findings import InputError, SpecError

from .tagger import CONFIG, TABLE, their_tensors

Tagger = Callable[..., tuple[Path, Path]]
ROOT = Path(__file__).parents[4]


def code_and_text(error: pytest.ExceptionInfo[SpecError]) -> list[tuple[str, str]]:
    """Return code and problem of every finding."""
    return [(finding.code, finding.problem) for finding in error.value.findings]


def test_every_weight_follows_the_table(tagger: Tagger) -> None:
    """Transposed, sliced, filled, reshaped, multiplied and added to; with endings and prefix."""
    folder, table = tagger()
    theirs = their_tensors()

    weights = weft.import_hf(folder, table).weights

    assert set(weights) == {
        "embedding.weight",
        "head.bias",
        *(
            f"encoder.{i}.map.{m}.{p}"
            for i in (0, 1)
            for m in ("inner", "outer")
            for p in ("weight", "bias")
        ),
    }
    for i in (0, 1):
        fused = theirs[f"base.block.{i}.fused"]
        assert torch.equal(weights[f"encoder.{i}.map.inner.weight"], fused.T[:6])
        assert torch.equal(weights[f"encoder.{i}.map.inner.bias"], torch.full((6,), 0.5))
        assert torch.equal(
            weights[f"encoder.{i}.map.outer.weight"], theirs[f"base.block.{i}.down.weight"]
        )
    assert torch.equal(weights["embedding.weight"], theirs["base.embed.gamma"])
    assert torch.equal(weights["head.bias"], 2 * theirs["out.bias"][0] + 0.25)


def test_the_checkpoint_opens_and_computes_the_same(tagger: Tagger, tmp_path: Path) -> None:
    """A checkpoint saved by the command gives the same outputs as the module in memory."""
    folder, table = tagger()
    tokens = torch.tensor([[0, 3, 4]])

    assert (
        main(["import", "hf", str(folder), "--as", str(table), "--out", str(tmp_path / "c")]) == 0
    )

    checkpoint = open_checkpoint(tmp_path / "c")
    ours = weft.import_hf(folder, table).build()
    with torch.no_grad():
        assert torch.equal(
            checkpoint.build()(tokens=tokens)["logits"], ours(tokens=tokens)["logits"]
        )
    assert checkpoint.state["imported"]["table"] == "hf-tagger"


def test_several_files_are_read_by_their_index(tagger: Tagger) -> None:
    """As large models are saved."""
    folder, table = tagger()
    whole = weft.import_hf(folder, table).weights
    (folder / "model.safetensors").unlink()
    places = {}
    for number, name in enumerate(their_tensors()):
        places[name] = f"part-{number % 2}.safetensors"
    for file in set(places.values()):
        save_file({n: t for n, t in their_tensors().items() if places[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    parts = weft.import_hf(folder, table).weights

    assert all(torch.equal(parts[path], tensor) for path, tensor in whole.items())


@pytest.mark.parametrize("file", ["../out.safetensors", "part.bin", "/etc/hosts"])
def test_an_index_names_only_files_of_its_folder(tagger: Tagger, file: str) -> None:
    """Only names of safetensors files in the same folder are allowed."""
    folder, table = tagger()
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}))

    with pytest.raises(InputError, match="not a safetensors file in its folder"):
        weft.import_hf(folder, table)


def test_pickled_weights_are_not_opened(tagger: Tagger) -> None:
    """Loading them could run code."""
    folder, table = tagger()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(InputError, match=r"'pytorch_model\.bin' is a pickle"):
        weft.import_hf(folder, table)


def test_both_lists_are_named_when_names_differ(tagger: Tagger) -> None:
    """One finding lists the target weights without a source and the unused source tensors."""
    missing, extra = "base.block.1.down.bias", "base.block.1.dwn.bias"
    folder, table = tagger(tensors={missing: None, extra: torch.zeros(4)})

    with pytest.raises(SpecError) as error:
        weft.import_hf(folder, table)

    [finding] = error.value.findings
    assert finding.code == "I04"
    assert finding.evidence == (
        "empty  encoder.1.map.outer.bias  from block.1.down.bias",
        "unused block.1.dwn.bias  [4]",
    )
    assert finding.help == "did you mean 'block.1.dwn.bias'?"


def test_a_path_that_no_line_fits_is_named(tagger: Tagger) -> None:
    """The finding also has the tensor that is unused as a result."""
    weights = {k: v for k, v in TABLE["weights"].items() if k != "head.bias"}
    folder, table = tagger(table={"weights": weights})

    with pytest.raises(SpecError, match=r"head\.bias  no pattern of the table matches it") as error:
        weft.import_hf(folder, table)

    assert "unused out.bias  [1, 5]" in str(error.value)


def test_weights_become_float32(tagger: Tagger) -> None:
    """Tensors of any dtype are converted; bfloat16 loses nothing."""
    half = their_tensors()["base.embed.gamma"].bfloat16()
    folder, table = tagger(tensors={"base.embed.gamma": half})

    weights = weft.import_hf(folder, table).weights

    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert torch.equal(weights["embedding.weight"], half.float())


def test_two_tensors_of_one_name_are_refused(tagger: Tagger) -> None:
    """One with the prefix, one without: the choice would be ambiguous."""
    folder, table = tagger(tensors={"embed.weight": torch.zeros(5, 4)})

    with pytest.raises(InputError, match=r"both map to 'embed\.weight'"):
        weft.import_hf(folder, table)


@pytest.mark.parametrize(
    "change",
    [
        {"take": [[0, "=size/3"]]},
        {"take": ["=model_type"]},
        {"take": [9]},
        {"take": [None, None, 0]},
        {"permute": [0, 0]},
        {"split": [["=10**12", 2]]},
        {"split": [[2, 3]]},
        {"times": "=model_type"},
        {"add": "=nothing"},
    ],
    ids=str,
)
def test_an_impossible_operation_gives_a_finding(tagger: Tagger, change: dict[str, Any]) -> None:
    """An operation that does not fit gives a finding, not another exception."""
    line = {"from": "block.{i}.down.{p}", **change}
    folder, table = tagger(
        table={"weights": {**TABLE["weights"], "encoder.{i}.map.outer.{p}": line}}
    )

    with pytest.raises(SpecError) as error:
        weft.import_hf(folder, table)

    assert {(f.code, f.at) for f in error.value.findings} == {
        ("I05", "/weights/encoder.{i}.map.outer.{p}")
    }


def test_only_an_older_checkpoint_is_replaced(tagger: Tagger, tmp_path: Path) -> None:
    """A folder with other content stays, and so does the imported one."""
    folder, table = tagger()
    made = weft.import_hf(folder, table)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")

    for out in (tmp_path / "notes", folder, tmp_path):
        with pytest.raises(InputError, match="exists and is not a checkpoint"):
            made.save(out)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"

    made.save(tmp_path / "new")
    made.save(tmp_path / "new")
    assert open_checkpoint(tmp_path / "new").graph.name == "tagger"


@pytest.mark.parametrize(
    ("data", "kept", "note"),
    [
        (None, [], "the checkpoint has no tokenizer: no spiece.model"),
        (
            b"no model",
            ["spiece.model"],
            "'spiece.model' is copied unchanged and not used for text: tokenizer file",
        ),
        (6, ["tokenizer.model"], ""),
        (7, ["spiece.model"], "it has 7 pieces, but the model's vocabulary has 6"),
    ],
)
def test_a_tokenizer_becomes_ours_where_its_ids_are(
    tagger: Tagger, tmp_path: Path, data: bytes | int | None, kept: list[str], note: str
) -> None:
    """Another tokenizer keeps its name, so that it is not mistaken for a usable one."""
    six = {"base.embed.gamma": torch.zeros(6, 4), "out.bias": torch.zeros(1, 6)}
    folder, table = tagger({"vocab": 6}, {"tokenizers": ["spiece.model"]}, six)
    if isinstance(data, int):
        settings = PieceSettings(type="bpe", vocab_size=data)
        data = train_tokenizer(["aa aa", "aa"], settings, tmp_path / "trained.model").bytes
    if data is not None:
        (folder / "spiece.model").write_bytes(data)

    made = weft.import_hf(folder, table)

    assert sorted(made.tokenizers) == kept
    assert all(note in given for given in made.notes)
    assert bool(made.notes) == bool(note)


def test_tensors_under_two_names_must_be_equal(tagger: Tagger) -> None:
    """Equal tensors are imported as one; different ones are errors."""
    same = their_tensors()["base.embed.gamma"]
    folder, table = tagger(tensors={"out.weight": same.clone()})
    assert torch.equal(weft.import_hf(folder, table).weights["embedding.weight"], same)

    folder, table = tagger(tensors={"out.weight": same + 1})
    with pytest.raises(SpecError) as error:
        weft.import_hf(folder, table)

    assert code_and_text(error) == [
        ("I05", "'embed.weight' and 'out.weight' should be equal, but differ")
    ]


def test_a_tensor_that_may_be_missing_is_filled(tagger: Tagger) -> None:
    """Only if it is missing; operations apply to existing tensors."""
    weights = {**TABLE["weights"], "head.bias": {"from": "out.bias", "take": [0], "fill": 3}}
    folder, table = tagger(table={"weights": weights})
    assert torch.equal(
        weft.import_hf(folder, table).weights["head.bias"], their_tensors()["out.bias"][0]
    )

    folder, table = tagger(table={"weights": weights}, tensors={"out.bias": None})
    assert weft.import_hf(folder, table).weights["head.bias"].tolist() == [3.0] * 5


CUT = "'block.0.fused' cannot be converted to 'encoder.0.map.inner.weight'"


def test_shapes_that_do_not_fit_are_all_named(tagger: Tagger) -> None:
    """Including shapes that an operation does not fit."""
    folder, table = tagger(
        tensors={"base.block.0.fused": torch.zeros(4, 5), "base.block.1.down.bias": torch.zeros(3)}
    )

    with pytest.raises(SpecError) as error:
        weft.import_hf(folder, table)

    assert code_and_text(error) == [
        (
            "I05",
            f"{CUT}: 0 to 6 are out of range for its 5 entries",
        ),
        ("I05", "'encoder.1.map.outer.bias' has the wrong shape"),
    ]


CONFIGS: list[tuple[dict[str, Any], list[tuple[str, str, str]]]] = [
    (
        {"model_type": "parser"},
        [
            (
                "I03",
                "/model_type",
                "the table 'hf-tagger' does not support models of type parser",
            )
        ],
    ),
    (
        {"architectures": ["Parser"]},
        [("I03", "/architectures", "weights of Parser are not supported")],
    ),
    (
        {"kind": "odd", "inner": 7},
        [("I03", "", "another inner width"), ("I03", "/kind", "kinds that are not plain")],
    ),
    ({"act": "tanh"}, [("I03", "", "'act' is tanh, but only relu, gelu_new are supported")]),
    ({"vocab": "(gone)"}, [("I02", "", "the configuration has no 'vocab'")]),
    ({"kind": "(gone)"}, [("I02", "", "the configuration has no 'kind'")]),
    (
        {"depth": {"layers": "two"}, "size": "(gone)"},
        [("I02", "", "the configuration has no 'size'")] * 2,
    ),
]


@pytest.mark.parametrize(("config", "wanted"), CONFIGS)
def test_a_configuration_that_is_not_supported_says_why(
    tagger: Tagger, config: dict[str, Any], wanted: list[tuple[str, str, str]]
) -> None:
    """All findings at once, each with its place."""
    folder, table = tagger(config=config)

    with pytest.raises(SpecError) as error:
        weft.import_hf(folder, table)

    assert [(f.code, f.at, f.problem) for f in error.value.findings] == wanted
    assert {f.source for f in error.value.findings} == {str(folder / "config.json")}


def test_an_infinity_is_read_as_transformers_5_writes_it(tmp_path: Path) -> None:
    """Python writes `Infinity`, which is not JSON, as in the limits of Mamba-2's time steps."""
    (tmp_path / "config.json").write_text('{"limits": [0.0, Infinity], "least": -Infinity}')

    config = read_object(tmp_path, "config.json")

    assert config == {
        "limits": [0.0, {"__float__": "Infinity"}],
        "least": {"__float__": "-Infinity"},
    }


def test_defaults_that_lead_in_a_circle_end(tagger: Tagger) -> None:
    """A circle gives a finding, not a crash."""
    folder, table = tagger(
        table={"defaults": {"inner": "=other", "other": "=inner", "act": "relu"}}
    )

    with pytest.raises(SpecError, match="in a circle: inner -> other -> inner"):
        weft.import_hf(folder, table)


TABLES: list[tuple[dict[str, Any], str, str]] = [
    ({"ignore": ["a.{i}{j}"]}, "/ignore/0", "'a.{i}{j}' has two placeholders between two dots"),
    ({"weigths": {}}, "/weigths", "unknown key 'weigths'"),
    (
        {"require": [{"else": "x"}]},
        "/require/0",
        "a condition needs exactly one of 'that' and 'key'",
    ),
    ({"weights": {"a": {"times": 2}}}, "/weights/a", "a weight needs 'from' or 'fill'"),
    (
        {"weights": {"a.{i}": "b.{j}"}},
        "/weights/a.{i}",
        "'{j}' of 'b.{j}' is not in the path on the left side",
    ),
    (
        {"weights": {"a": {"from": "b", "transpose": True}}},
        "/weights/a/transpose",
        "unknown key 'transpose'",
    ),
]


@pytest.mark.parametrize(("change", "at", "problem"), TABLES)
def test_a_wrong_table_says_where(
    tagger: Tagger, change: dict[str, Any], at: str, problem: str
) -> None:
    """By JSON Pointer, before the folder is read."""
    _, table = tagger(table=change)

    with pytest.raises(SpecError) as error:
        load_table(table)

    [finding] = error.value.findings
    assert (finding.at, finding.problem) == (at, problem)


def test_two_lines_for_one_path_are_a_mistake(tagger: Tagger) -> None:
    """The result must not depend on the order of lines."""
    weights = {**TABLE["weights"], "encoder.{i}.map.{m}.weight": "block.{i}.x"}
    folder, table = tagger(table={"weights": weights})

    with pytest.raises(
        SpecError,
        match=r"matches both 'encoder\.\{i\}\.map\.inner\.weight' and 'encoder\.\{i\}\.map\.\{m\}",
    ):
        weft.import_hf(folder, table)


def test_a_table_may_name_only_a_spec_in_its_folder(tagger: Tagger) -> None:
    """A path cannot leave the folder of the table."""
    folder, table = tagger(table={"spec": "../tagger.json"})

    with pytest.raises(InputError, match=r"no spec '\.\./tagger\.json' next to the table"):
        weft.import_hf(folder, table)


def leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to all parts of a nested value."""
    container = value if isinstance(value, dict | list) else []
    for key, part in container.items() if isinstance(container, dict) else enumerate(container):
        yield (*way, key)
        yield from leaves(part, (*way, key))


ODD: list[Any] = [None, True, -1, 1e300, "x", "{i}.{i}", "=", "=1/0", "=size", "=depth", [], {}]
ODD += [{"by": 5, "cases": []}, {"by": "size", "cases": {}}, [[1]], "=10**15"]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["table", "config"])
def test_nothing_but_findings_comes_of_odd_values(tagger: Tagger, which: str) -> None:
    """Each value of a table and of a configuration is replaced by each of a list of odd values."""
    whole = TABLE if which == "table" else CONFIG
    refused = tried = 0
    for way in leaves(whole):
        for odd in ODD:
            changed = copy.deepcopy(whole)
            here = changed
            for key in way[:-1]:
                here = here[key]
            here[way[-1]] = odd
            folder, table = tagger(**{which: changed})
            tried += 1
            try:
                weft.import_hf(folder, table)
            except InputError:
                refused += 1

    assert tried / 2 < refused < tried


def test_a_model_without_sources_decodes_none(tagger: Tagger, tmp_path: Path) -> None:
    """The error names the required inputs."""
    weft.import_hf(*tagger()).save(tmp_path / "made")

    with pytest.raises(InputError, match="needs an encoder-decoder over ids"):
        weft.open(tmp_path / "made").decode([[1]])


def test_the_page_has_every_code_and_key() -> None:
    """`docs/importing.md` has every code and key, and its example is a valid table."""
    page = (ROOT / "docs" / "importing.md").read_text(encoding="utf-8")
    examples = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    forms = (ImportTable, Line)
    keys = {field.alias or name for form in forms for name, field in form.model_fields.items()}

    assert ImportTable.model_validate(json.loads(examples[0])).name == "hf-tagger"
    assert all(json.loads(example) for example in examples)
    assert keys == set(re.findall(r"`([a-z_]+)`", page)) & keys

    sources = "".join(
        p.read_text() for p in (ROOT / "extensions" / "interop" / "importing").glob("*.py")
    )

    assert set(re.findall(r"^\| (I\d\d) \|", page, re.MULTILINE)) == set(
        re.findall(r'"(I\d\d)"', sources)
    )


def test_comparing_without_transformers_names_the_extra(
    tagger: Tagger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command ends before it imports or writes anything."""
    folder, table = tagger()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    out = tmp_path / "out"

    code = main(["import", "hf", str(folder), "--as", str(table), "--out", str(out), "--compare"])

    error = capsys.readouterr().err
    assert code == 1
    assert "comparing needs the package 'transformers'" in error
    assert "pip install 'weft[parity]'" in error
    assert not out.exists()


def test_the_report_of_an_import_is_json(
    tagger: Tagger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --compare, the comparison is null."""
    folder, table = tagger()
    out = tmp_path / "out"

    assert main(["import", "hf", str(folder), "--as", str(table), "--out", str(out), "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["spec"] == "tagger"
    assert report["parameters"] == sum(
        w.numel() for w in weft.import_hf(folder, table).weights.values()
    )
    assert (report["comparison"], report["wrote"]) == (None, str(out))
