"""The commands that compare specs, cost and patch them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import weft
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.flops import default_sizes
from weft.graphs.cost.table import cost_table
from weft.graphs.json_schema import schema
from weft.runtime.cli.cost import render
from weft.runtime.cli.main import main
from weft.specs.findings import SpecError
from weft.specs.load import load
from weft.specs.reader import SHIPPED

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def shallow(tmp_path: Path) -> str:
    """Return a variant of transformer-base with two layers."""
    path = tmp_path / "shallow.json"
    spec = {
        "format": 1,
        "extends": "transformer-base",
        "name": "shallow",
        "params": {"layers": 2},
    }
    path.write_text(json.dumps(spec))
    return str(path)


@pytest.mark.integration
def test_a_difference_is_printed_and_exits_0(shallow: str, capsys: Capture) -> None:
    """The text has names, a line per change and sizes; no colors outside a terminal."""
    assert main(["diff", "transformer-base", shallow]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "transformer-base -> shallow",
        "",
        "~ encoder  copies 6 -> 2",
        "~ decoder  copies 6 -> 2",
    ]
    assert lines[5] == "parameters 63,082,496 -> 33,656,832 (-46.6 %)"


@pytest.mark.integration
def test_a_terminal_shows_colors(
    shallow: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed lines are yellow; unchanged lines have no color."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert main(["diff", "transformer-base", shallow]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "\x1b[33m~ encoder  copies 6 -> 2\x1b[0m"
    assert lines[0] == "transformer-base -> shallow"


@pytest.mark.integration
def test_json_says_whether_they_are_equal(shallow: str, capsys: Capture) -> None:
    """Scripts read `equal`; the exit code is 0 in both cases."""
    assert main(["diff", "transformer-base", shallow, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is False

    assert main(["diff", shallow, shallow, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] is True
    assert found["changes"] == []


@pytest.mark.integration
def test_a_picture_is_drawn_in_addition_to_the_text(
    shallow: str, tmp_path: Path, capsys: Capture
) -> None:
    """A .dot file needs no graphviz."""
    out = tmp_path / "d.dot"

    assert main(["diff", "transformer-base", shallow, "-o", str(out)]) == 0

    assert out.read_text().startswith("digraph")
    assert f"drawn      {out}" in capsys.readouterr().out


@pytest.mark.integration
def test_a_spec_that_is_not_sound_exits_1(shallow: str, tmp_path: Path, capsys: Capture) -> None:
    """Its findings are printed as by `weft check`."""
    bad = tmp_path / "bad.json"
    bad.write_text(Path(shallow).read_text().replace('"layers": 2', '"heads": 7'))

    assert main(["diff", "transformer-base", str(bad)]) == 1
    assert "E05" in capsys.readouterr().err


@pytest.mark.integration
def test_comparing_needs_no_torch(shallow: str) -> None:
    """The command starts as fast as `weft check`."""
    code = (
        "import sys; from weft.runtime.cli.main import main; "
        f"main(['diff', 'transformer-base', {shallow!r}]); sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr


def test_costs_are_printed_by_node(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has the requested sizes, and totals at the end."""
    assert main(["cost", "transformer-base", "--axes", "S=40,T=40", "--axes", "B=2"]) == 0

    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line}
    # Two sentences of 40 tokens; a multiply-add for each of 512 x 37000 weights.
    assert rows["head"][2] == f"{2 * 2 * 40 * 512 * 37_000:,}"
    assert rows["total"][1] == "63,082,496"
    assert rows["sizes"][1:] == ["B=2", "S=40", "T=40,", "float32"]


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has all printed values and the requested settings."""
    assert (
        main(["cost", "transformer-base", "--set", "layers=1", "--precision", "bfloat16", "--json"])
        == 0
    )

    printed = json.loads(capsys.readouterr().out)
    assert printed["precision"] == "bfloat16"
    assert printed["cache"]["decoder.*.self_attention"] == 32 * 2 * 512 * 2
    assert printed["cache_bytes"] == sum(printed["cache"].values())
    assert printed["parameters"] == sum(node["parameters"] for node in printed["nodes"])


def test_a_spec_that_does_not_decode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no decoding state, and the footer says why."""
    spec = {
        "format": 1,
        "name": "tagger",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"words": "ids:9[B T]"},
        "outputs": {"y": "embedding.y"},
        "nodes": {
            "embedding": {"use": "embedding@1", "in": {"ids": "words"}, "params": {"d_model": 8}}
        },
    }
    path = tmp_path / "tagger.json"
    path.write_text(json.dumps(spec))

    assert main(["cost", str(path)]) == 0
    assert "decoding     none: the spec names no axis in 'step'" in capsys.readouterr().out


def test_blocks_of_unknown_state_are_named() -> None:
    """The total does not contain their state."""
    graph = check(load("transformer-tiny").form, registry())
    table = cost_table(graph, default_sizes(graph))

    assert "; without that of mine@1" in render(table, {}, "float32", "T", ["mine@1"])
    assert "without that of" not in render(table, {}, "float32", "T")


@pytest.mark.integration
def test_a_plot_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plot is a PNG; the text is printed too."""
    out = tmp_path / "pictures" / "cost.png"

    assert main(["cost", "transformer-tiny", "-o", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert list(out.parent.iterdir()) == [out]
    assert str(out) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "problem", "help_"),
    [
        (["transformer-base", "--axes", "U=4"], "has no axis 'U'", "known: B, S, T"),
        (
            ["transformer-base", "-o", "x.jpg"],
            "cannot plot into a file that ends in '.jpg'",
            ".png",
        ),
    ],
)
def test_invalid_inputs_are_reported(
    arguments: list[str], problem: str, help_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has a fix, and the exit code is 1."""
    assert main(["cost", *arguments]) == 1

    printed = capsys.readouterr().err
    assert problem in printed
    assert help_ in printed


@pytest.mark.parametrize(
    ("axes", "problem"),
    [
        ("S", "'S' is not the size of an axis, such as S=40"),
        ("S=0", "'0' is not a whole number from 1 to 1,000,000,000"),
        ("S=-3", "'-3' is not a whole number"),
        (f"S={10**40}", "is not a whole number"),
    ],
)
def test_a_size_that_is_no_size_is_a_wrong_command_line(
    axes: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and the message names the option."""
    assert main(["cost", "transformer-base", "--axes", axes]) == 2

    printed = " ".join(capsys.readouterr().err.replace("\u2502", " ").split())
    assert "--axes" in printed
    assert problem in printed


ATTENTION = "**[use=attention@1]"
SIZES: Any = {"d_model": 16, "heads": 2, "layers": 3, "vocab": 50}


def test_the_variant_is_one_patch(tmp_path: Path, capsys: Capture) -> None:
    """GPT-2 has 12 layers; each map of 768 x 768 gets 2 * 768 * 8 numbers."""
    out = tmp_path / "adapted.json"
    words = ["lora", "gpt2", ATTENTION, "--rank", "8", "--maps", "query,value", "-o", str(out)]

    assert main(words) == 0

    text = capsys.readouterr().out
    assert "LoRA of 24 linear maps" in text
    assert f"{24 * 2 * 768 * 8:,} of" in text
    lora = {"rank": 8, "alpha": 16.0, "maps": ["query", "value"]}
    assert json.loads(out.read_text())["patch"] == [
        {"select": ATTENTION, "set": {"params.lora": lora}}
    ]
    added = weft.load(out).graph().parameters() - weft.load("gpt2").graph().parameters()
    assert added == 24 * 2 * 768 * 8


def test_all_maps_of_a_block_are_the_default() -> None:
    """A feed-forward network of 16 and 64 has two maps, in 3 layers."""
    spec = weft.load("gpt2", **SIZES)

    variant = spec.lora("**[use=feed_forward@1]", rank=2)

    added = variant.graph().parameters() - spec.graph().parameters()
    assert added == 3 * 2 * 2 * (16 + 64)
    assert variant.written["extends"] == "gpt2"


def test_the_variant_begins_as_its_parent() -> None:
    """The second matrix is zero at first, and the weights of the parent are drawn as before."""
    spec = weft.load("gpt2", **SIZES)
    inputs = weft.example_inputs(spec)

    parent, variant = weft.build(spec).eval(), weft.build(spec.lora(ATTENTION, rank=2)).eval()

    assert variant(**inputs)["logits"].equal(parent(**inputs)["logits"])


@pytest.mark.parametrize(
    ("select", "maps", "code", "help_"),
    [
        (ATTENTION, ["qury"], "P02", "did you mean 'query'?"),
        ("**[use=linear@1]", ["query"], "P02", "remove 'maps'"),
        ("**[use=layer_norm@1]", [], "N04", "known: bias, eps"),
        ("**[use=gru@1]", [], "X01", ""),
    ],
)
def test_what_has_no_such_maps_is_refused(
    select: str, maps: list[str], code: str, help_: str
) -> None:
    """A typo, a block that is a map itself, one without maps, and one that is not there."""
    with pytest.raises(SpecError) as caught:
        weft.load("gpt2", **SIZES).lora(select, rank=2, maps=maps)

    [finding] = caught.value.findings
    assert finding.code == code
    assert help_ in finding.help


def test_nothing_is_written_if_the_variant_is_invalid(tmp_path: Path) -> None:
    """The exit code is 1."""
    words = ["lora", "gpt2", "**[use=layer_norm@1]", "--rank", "8", "-o", str(tmp_path / "a.json")]

    assert main(words) == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.integration
def test_the_schema_is_printed_or_written(tmp_path: Path, capsys: Capture) -> None:
    """Both outputs are the schema."""
    out = tmp_path / "new" / "weft.schema.json"

    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert main(["schema", "-o", str(out)]) == 0

    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text(encoding="utf-8") == printed
    assert json.loads(printed) == schema(registry())
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: Capture) -> None:
    """Writing to a folder is an error that names it."""
    assert main(["schema", "-o", str(tmp_path)]) == 1
    assert "cannot write the file" in capsys.readouterr().err


@pytest.mark.integration
def test_a_spec_that_names_its_schema_is_checked_and_valid(tmp_path: Path, capsys: Capture) -> None:
    """A spec with `$schema`, as in the README, passes the check and the schema."""
    whole = json.loads((SHIPPED / "models" / "transformer-base.json").read_text(encoding="utf-8"))
    child = {"format": 1, "extends": "transformer-base", "name": "child", "params": {"layers": 2}}
    for value in (whole, child):
        named = {"$schema": "./weft.schema.json", **value}
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(named), encoding="utf-8")

        assert main(["check", str(path)]) == 0
        jsonschema.Draft202012Validator(schema(registry())).validate(named)
    capsys.readouterr()
