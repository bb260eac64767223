"""The command `weft show`: passes and code."""

from __future__ import annotations

import json

import pytest
from weft.runtime.cli.main import main

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *arguments: str) -> str:
    """Return what `weft show` prints."""
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_the_passes_of_a_run_are_those_of_its_settings(capsys: Capture) -> None:
    """`padding` and `activation_checkpointing` of the run decide."""
    rows = json.loads(printed(capsys, "multi30k-en-de", "--passes", "--json"))
    padded = json.loads(
        printed(
            capsys,
            "multi30k-en-de",
            "--passes",
            "--json",
            *("--set", "padding=padded"),
            *("--set", "activation_checkpointing=model.decoder.*"),
        )
    )

    assert [row["pass"] for row in rows] == ["unpad", "fuse", "checkpoint", "kernels"]
    assert [bool(row["changed"]) for row in rows] == [True, True, False, False]
    assert padded[0]["changed"] == []
    assert padded[2]["changed"] == ["4 modules, from model.decoder.0"]


def test_the_code_is_that_of_training_or_of_evaluation(capsys: Capture) -> None:
    """Each pass can be seen in the Python that it makes, and left out."""
    plain = printed(capsys, "multi30k-en-de", "--code")
    trained = printed(capsys, "multi30k-en-de", "--code", "--train")
    unfused = printed(capsys, "multi30k-en-de", "--code", "--train", "--without", "fuse")
    first = printed(capsys, "multi30k-en-de", "--code", "--train", "--after", "unpad")

    for word in ("without_padding(", "LinearOutput("):
        assert word in trained
        assert word not in plain
    assert "LinearOutput(" not in unfused
    assert "without_padding(" in unfused
    assert first == unfused
    for text in (plain, trained):
        assert "class Translation(nn.Module)" in text
        assert "class TransformerTiny(nn.Module)" in text


@pytest.mark.parametrize(
    ("options", "help_"),
    [
        (("--train",), "add --code"),
        (("--without", "fuse"), "add --passes or --train"),
        (("--code", "--passes"), "either"),
        (("--code", "--json"), "use --passes"),
        (("--passes", "--after", "fuse", "--without", "fuse"), "leave it in"),
        (("--passes", "--after", "unpadd"), "unpad"),
    ],
)
def test_options_without_effect_are_refused(
    capsys: Capture, options: tuple[str, ...], help_: str
) -> None:
    """Each error names the way out."""
    assert main(["show", "transformer-tiny", *options]) in (1, 2)
    assert help_ in capsys.readouterr().err
