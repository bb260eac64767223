"""`weft lora`: a variant with low-rank matrices, written as a patch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.runtime.cli.main import main
from weft.specs.findings import SpecError

Capture = pytest.CaptureFixture[str]
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
