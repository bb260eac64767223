"""`weft swap`: a variant written as a checked patch, and the weights that carry over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.graphs.ir.canonical import fingerprint
from weft.runtime.cli.main import main
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError, SpecError
from weft.specs.load import load_child

Capture = pytest.CaptureFixture[str]
ATTENTION = "**/f[use=attention@1]"
GROUPED = ("--use", "attention@1", "--set", "kv_heads=2")


def written(path: Path) -> list[dict[str, Any]]:
    """Return the patches of a file."""
    patches: list[dict[str, Any]] = json.loads(path.read_text())["patch"]
    return patches


def test_a_swap_is_one_patch_that_checks(tmp_path: Path, capsys: Capture) -> None:
    """Common params are kept; 18 attentions of 6 + 12 layers have narrower keys and values.

    Each of the two maps changes from 512 x 512 + 512 to 512 x 128 + 128.
    """
    out = tmp_path / "gqa.json"

    assert main(["swap", "transformer-base", ATTENTION, *GROUPED, "-o", str(out)]) == 0

    text = capsys.readouterr().out
    assert "attention@1 in 3 places" in text
    assert "encoder.*.self_attention.f.key.weight     6 x [512, 512] -> [128, 512]" in text
    assert json.loads(out.read_text()) == {
        "format": 1,
        "extends": "transformer-base",
        "name": "gqa",
        "patch": [
            {
                "select": ATTENTION,
                "expect": 3,
                "set": {"use": "attention@1", "params.kv_heads": 2},
            }
        ],
    }
    lost = 18 * 2 * (512 * (512 - 128) + 512 - 128)
    assert graph_of(str(out)).parameters() == 63_082_496 - lost
    assert [path.name for path in tmp_path.iterdir()] == ["gqa.json"]


def test_patches_remove_params_that_the_new_block_lacks(tmp_path: Path, capsys: Capture) -> None:
    """Params are removed only where they occur: only one of the three places is causal."""
    spec = tmp_path / "base.json"
    patch = {"select": "encoder.*.self_attention/f", "set": {"params.bias": False}}
    child = {"format": 1, "name": "base", "extends": "transformer-base", "patch": [patch]}
    spec.write_text(json.dumps(child))
    out = tmp_path / "own.json"

    select = "*coder.*.self_attention"
    base = ["swap", str(spec), select, "--use", "layer_norm@1", "-o", str(out)]
    assert main(base) == 1  # the encoder's mask has no port
    assert not out.exists()
    assert main([*base[:2], "decoder.*.self_attention", *base[3:], "--name", "flat"]) == 0

    assert "was sublayer@1, without params.order, params.dropout, fill.f" in capsys.readouterr().out
    assert written(out)[1] == {
        "select": "decoder.*.self_attention",
        "expect": 1,
        "remove": ["fill.f", "params.dropout", "params.order"],
    }
    assert graph_of(str(out)).name == "flat"


def test_places_that_lose_different_params_have_patches_of_their_own() -> None:
    """A param set only in the encoder is removed only there, by its own selection."""
    base = weft.load("transformer-base")
    select = "**.feed_forward/f"
    gelu = base.swap("encoder.*.feed_forward/f", "feed_forward@1", activation="gelu")

    patches = gelu.swap(select, "dropout@1").written["patch"]

    assert patches == [
        {"select": select, "expect": 2, "set": {"use": "dropout@1"}},
        {
            "select": f"{select}[params.activation=*]",
            "expect": 1,
            "remove": ["params.activation"],
        },
        {"select": select, "expect": 2, "remove": ["params.d_ff"]},
        {"select": "/", "remove": ["params.d_ff"]},
    ]


def test_params_that_nothing_reads_any_more_are_removed(tmp_path: Path, capsys: Capture) -> None:
    """Params that only removed params use are removed too."""
    out = tmp_path / "one.json"
    code = main(
        ["swap", "transformer-base", "**.feed_forward", "--use", "layer_norm@1", "-o", str(out)]
    )

    assert code == 0
    assert "removed: d_ff, relu_dropout" in capsys.readouterr().out
    assert written(out)[-1] == {"select": "/", "remove": ["params.d_ff", "params.relu_dropout"]}
    assert "d_ff" not in graph_of(str(out)).params


def test_the_output_as_data(tmp_path: Path, capsys: Capture) -> None:
    """JSON has the content of the file and every weight."""
    out = tmp_path / "gqa.json"
    assert main(["swap", "transformer-tiny", ATTENTION, *GROUPED, "-o", str(out), "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed["spec"] == json.loads(out.read_text())
    assert "encoder.0.self_attention.f.key.weight" in printed["weights"]["reshaped"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["head", "--use", "liner@1"], "did you mean 'linear@1'?"),
        (["head", "--use", "embedding@1"], "param 'd_model' of embedding@1 is missing"),
        (["hed", "--use", "linear@1"], "nearest: head"),
        (["head", "--use", "linear@1", "--expect", "2"], "selects 1, expected 2"),
        (["head", "--use", "linear@1", "--set", "d_uot=3"], "did you mean 'd_out'?"),
        (["head", "--use", "linear@1", "--name", "a b"], "'a b' is not a valid name"),
        (["encoder", "--use", "linear@1"], "'encoder' is a repeat, not a block"),
        (["/", "--use", "linear@1"], "'/' selects no block"),
        (["a..b", "--use", "linear@1"], "a segment is missing"),
    ],
)
def test_a_swap_that_does_not_check_writes_nothing(
    arguments: list[str], words: str, tmp_path: Path, capsys: Capture
) -> None:
    """The exit code is 1, and findings point into the variant."""
    out = tmp_path / "new.json"
    out.write_text("before")

    code = main(["swap", "transformer-base", *arguments, "-o", str(out)])

    assert code == 1
    assert words in capsys.readouterr().err
    assert out.read_text() == "before"


def test_the_parent_must_be_in_reach_of_the_variant(tmp_path: Path, capsys: Capture) -> None:
    """The parent is next to the variant or shipped and not shadowed, and is not the variant."""
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"format": 1, "name": "mine", "extends": "transformer-tiny"}))

    def swapped(spec: str, out: str) -> str:
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        code = main(["swap", spec, ATTENTION, *GROUPED, "-o", str(tmp_path / out)])
        assert code == 1
        return capsys.readouterr().err

    assert "cannot extend" in swapped(str(mine), "elsewhere/new.json")
    assert f"-o {tmp_path / 'new.json'}" in swapped(str(mine), "elsewhere/new.json")
    assert "would overwrite" in swapped(str(mine), "mine.json")
    (tmp_path / "transformer-tiny.json").write_text(mine.read_text())
    assert "cannot extend" in swapped("transformer-tiny", "new.json")
    assert main(["swap", str(mine), ATTENTION, *GROUPED, "-o", str(tmp_path / "new.json")]) == 0


def test_from_python_a_swap_gives_a_new_spec() -> None:
    """Overrides and the old spec are kept, and swaps can be chained."""
    base = weft.load("transformer-tiny", layers=3)
    before = fingerprint(graph_of(base))

    grouped = base.swap(ATTENTION, "attention@1", kv_heads=2)
    gated = grouped.swap("**/f[use=feed_forward@1]", "gated_feed_forward@1")

    assert fingerprint(graph_of(base)) == before
    paths = graph_of(gated).weights()
    assert "encoder.2.feed_forward.f.gate.weight" in paths
    assert "encoder.3.feed_forward.f.gate.weight" not in paths
    d_model = graph_of(base).params["d_model"]
    heads = graph_of(base).params["heads"]
    assert paths["decoder.0.cross_attention.f.key.weight"] == (2 * d_model // heads, d_model)
    assert weft.check(gated) == []
    assert gated.origin_of("/blocks/encoder_layer/nodes/feed_forward/fill/f/use") == (
        "<swap>",
        "/patch/0/set/use",
    )


def test_from_python_a_wrong_swap_raises() -> None:
    """The exception has the findings or the reason."""
    base = weft.load("transformer-tiny")
    with pytest.raises(SpecError) as error:
        base.swap("decoder.*.self_attention/f", "linear@1")
    assert {(f.code, f.source, f.at) for f in error.value.findings} == {
        ("W07", "<swap>", "/patch/0/set/use")
    }
    with pytest.raises(InputError):
        base.swap("**", "linear@1")


def test_a_mistake_of_a_patch_is_reported_once(tmp_path: Path, capsys: Capture) -> None:
    """The patch sets the misspelled block in three places, but the file names it once."""
    swap = ["swap", "transformer-base", ATTENTION, "--use", "atention@1"]

    assert main([*swap, "-o", str(tmp_path / "mine.json")]) == 1

    assert capsys.readouterr().err.count("error[N01]") == 1


def test_a_swap_removes_kept_params_that_have_no_effect() -> None:
    """Without a norm, `order` has no effect; the dropout of the same block is kept."""
    base = weft.load("transformer-tiny")
    patch = {"select": "**[use=sublayer@1]", "set": {"params.order": "pre"}}
    child = {"format": 1, "name": "pre", "extends": "transformer-tiny", "patch": [patch]}
    spec = replace(base, recovered=load_child(base, child, "pre.json").form, origins=None)

    swapped = spec.swap("encoder.*.feed_forward", "sublayer@1", norm="none")

    assert weft.check(swapped).errors == []
    assert swapped.written["patch"][1:] == [
        {"select": "encoder.*.feed_forward", "expect": 1, "remove": ["params.order"]}
    ]
    params = swapped.value()["blocks"]["encoder_layer"]["nodes"]["feed_forward"]["params"]
    assert params == {"dropout": "=dropout", "norm": "none"}


def test_a_swap_of_one_copy_removes_params_only_there() -> None:
    """The copy has its own template, whose params are found by where they were written."""
    base = weft.load("transformer-tiny", layers=3)
    pre = base.swap("encoder.*.feed_forward", "sublayer@1", order="pre")

    swapped = pre.swap("encoder.1.feed_forward", "sublayer@1", norm="none")

    assert weft.check(swapped).errors == []
    assert swapped.written["patch"][1]["remove"] == ["params.order"]
    assert graph_of(swapped).parameters() < graph_of(pre).parameters()


def test_a_swap_does_not_remove_params_that_were_asked_for() -> None:
    """A param without effect that the user sets is an error."""
    base = weft.load("transformer-tiny")

    with pytest.raises(SpecError) as error:
        base.swap("encoder.*.feed_forward", "sublayer@1", norm="none", eps=0.1)

    assert [(f.code, f.at) for f in error.value.findings] == [("P08", "/patch/0/set/params.eps")]
