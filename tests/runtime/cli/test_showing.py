"""The command `weft show`: passes and code."""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest
from weft.runtime.cli.main import main
from weft.specs.reader import shipped_names

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *arguments: str) -> str:
    """Return what `weft show` prints."""
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_the_passes_of_a_run_are_those_of_its_settings(capsys: Capture) -> None:
    """`without`, `activation_checkpointing` and others of the run decide."""
    rows = json.loads(printed(capsys, "multi30k-en-de", "--passes", "--json"))
    other = json.loads(
        printed(
            capsys,
            "multi30k-en-de",
            "--passes",
            "--json",
            *("--set", 'without=["fuse"]'),
            *("--set", "activation_checkpointing=model.decoder.*"),
            *("--set", "parallel.data=fsdp"),
            *("--set", "precision=bfloat16"),
        )
    )

    assert [row["pass"] for row in rows] == [
        "merge",
        "unpad",
        "fuse",
        "checkpoint",
        "kernels",
        "parallel",
        "casts",
    ]
    assert [bool(row["changed"]) for row in rows] == [False, True, True, False, True, False, False]
    assert rows[4]["changed"] == ["products and attention measured when training begins"]
    names = ["merge", "unpad", "checkpoint", "kernels", "parallel", "casts"]
    assert [row["pass"] for row in other] == names
    assert other[2]["changed"] == ["4 modules, from model.decoder.0"]
    assert other[4]["changed"] == ["fsdp shards 8 layers separately, from model.encoder.0"]
    assert other[5]["changed"] == [
        "fsdp gathers weights in bfloat16, and sums gradients in float32"
    ]


def test_the_kernels_of_a_run_are_those_that_it_names(capsys: Capture) -> None:
    """The code sets them; those that are `auto` are not known yet."""
    named = ("multi30k-en-de", "--set", "kernels.attention=plain")
    [_, _, _, _, row, *_] = json.loads(printed(capsys, *named, "--passes", "--json"))
    both = printed(capsys, *named, "--set", "kernels.product=onednn", "--code", "--train")

    assert row["changed"] == ["attention plain, products measured when training begins"]
    assert "use_kernels(self, attention={'*': 'plain'})" in printed(
        capsys, *named, "--code", "--train"
    )
    assert "use_kernels(self, product='onednn', attention={'*': 'plain'})" in both
    assert "use_kernels" not in printed(capsys, "multi30k-en-de", "--code", "--train")


@pytest.mark.integration
def test_a_pass_is_shown_by_what_it_changes_in_the_code(capsys: Capture) -> None:
    """Lines after it and not before; a pass of decoding needs --decode."""
    unpadded = printed(capsys, "multi30k-en-de", "--after", "unpad").splitlines()
    before = printed(capsys, "multi30k-en-de", "--code").splitlines()
    after = printed(capsys, "multi30k-en-de", "--code", "--train", "--after", "unpad").splitlines()

    added = [line[1:] for line in unpadded[2:] if line.startswith("+")]
    removed = [line[1:] for line in unpadded[2:] if line.startswith("-")]
    assert any("without_padding(" in line for line in added)
    assert Counter(after) - Counter(before) == Counter(added) - Counter(removed)
    fused = printed(capsys, "multi30k-en-de", "--train", "--after", "fuse")
    assert "LinearOutput(" in fused
    assert "without_padding(" not in fused
    prepacked = printed(capsys, "transformer-base", "--decode", "--after", "prepack")
    assert "+        prepack(self, torch.float32)" in prepacked
    assert "changes nothing" in printed(capsys, "transformer-base", "--after", "casts")
    assert main(["show", "transformer-base", "--after", "prepack"]) == 1
    assert "add --decode" in capsys.readouterr().err


@pytest.mark.integration
def test_the_code_is_that_of_training_or_of_evaluation(capsys: Capture) -> None:
    """Each pass can be seen in the Python that it makes, and left out."""
    plain = printed(capsys, "multi30k-en-de", "--code")
    trained = printed(capsys, "multi30k-en-de", "--code", "--train")
    unfused = printed(capsys, "multi30k-en-de", "--code", "--train", "--without", "fuse")
    first = printed(capsys, "multi30k-en-de", "--code", "--train", "--after", "unpad")
    half = ("multi30k-en-de", "--code", "--train", "--set", "precision=float16")
    cast, uncast = printed(capsys, *half), printed(capsys, *half, "--without", "casts")

    for word in ("without_padding(", "LinearOutput("):
        assert word in trained
        assert word not in plain
    left_out = ("multi30k-en-de", "--set", 'without=["fuse"]', "--train")
    assert printed(capsys, *left_out, "--code") == unfused
    assert main(["show", *left_out, "--code", "--without", "fuse"]) == 1
    assert "the run leaves 'fuse' out already" in capsys.readouterr().err
    assert main(["show", *left_out, "--after", "fuse"]) == 1
    assert "the pass 'fuse' is left out" in capsys.readouterr().err
    assert "LinearOutput(" not in unfused
    assert "without_padding(" in unfused
    assert first == unfused
    assert "self.casts = Casts(torch.float16)" in cast
    fused = ("--set", "kernels.attention=fused")  # the kernel of float16 is not measured
    assert uncast == printed(capsys, "multi30k-en-de", "--code", "--train", *fused)
    for text in (plain, trained):
        assert "class Translation(nn.Module)" in text
        assert "class TransformerTiny(nn.Module)" in text


@pytest.mark.parametrize(
    ("options", "help_"),
    [
        (("--train",), "add --code"),
        (("--decode",), "add --code or --passes"),
        (("--code", "--decode", "--train"), "give one of them"),
        (("--without", "fuse"), "add --passes"),
        (("--code", "--decode", "--without", "fuse"), "kernels, merge, prepack"),
        (("--passes", "--quantize", "int8"), "help: add --decode\n"),
        (("--quantize", "int8"), "help: add --decode --passes\n"),
        (("--passes", "--shortlist"), "add --decode"),
        (("--code", "--passes"), "either"),
        (("--code", "--json"), "use --passes"),
        (("--passes", "--after", "fuse", "--without", "fuse"), "leave it in"),
        (("--passes", "--after", "unpadd"), "unpad"),
        (("--after", "unpad", "--json"), "use --passes"),
    ],
)
def test_options_without_effect_are_refused(
    capsys: Capture, options: tuple[str, ...], help_: str
) -> None:
    """Each error names the way out."""
    assert main(["show", "transformer-tiny", *options]) in (1, 2)
    assert help_ in capsys.readouterr().err


def test_the_code_of_decoding_names_its_kernels(capsys: Capture) -> None:
    """Of a run, it is that of the model which it trains; an export is shown likewise."""
    plain = printed(capsys, "multi30k-en-de", "--code", "--decode", "--after", "kernels")
    whole = printed(capsys, "multi30k-en-de", "--code", "--decode")
    loops = printed(capsys, "gru-attention", "--code", "--export")
    rows = json.loads(printed(capsys, "multi30k-en-de", "--passes", "--decode", "--json"))

    for text in (plain, whole):
        assert "class TransformerTiny(nn.Module)" in text
        assert "class Translation(" not in text
    for line in ("prepack(self, torch.float32)", "class CompiledDecoderLayer(DecoderLayer)"):
        assert line in whole
        assert line not in plain
    assert "    _scan = scan" in loops
    names = ["merge", "unpad", "kernels", "shortlist", "quantize", "prepack", "compile"]
    assert [row["pass"] for row in rows] == names
    assert rows[6]["changed"] == ["the steps of 4 layers, from decoder.0"]


def test_the_code_of_decoding_in_int8(capsys: Capture) -> None:
    """Maps are rounded before the rest is prepacked; nothing is rounded unless requested."""
    wanted = ("--code", "--decode", "--quantize", "int8")
    plain = printed(capsys, "transformer-base", "--code", "--decode")
    rounded = printed(capsys, "transformer-base", *wanted)
    without = printed(capsys, "transformer-base", *wanted, "--without", "quantize")

    lines = "        quantize(self, torch.float32)\n        prepack(self, torch.float32)\n"
    assert lines in rounded
    assert plain == without == printed(capsys, "transformer-base", *wanted[:3], "none")
    assert "quantize" not in plain


def test_the_code_of_decoding_with_a_shortlist(capsys: Capture) -> None:
    """`begin` selects the rows of the output projection, and `step` calls the smaller map."""
    wanted = ("transformer-base", "--decode", "--shortlist")
    code = printed(capsys, *wanted, "--code")
    plain = printed(capsys, *wanted, "--code", "--without", "shortlist")
    passes = printed(capsys, *wanted, "--passes")

    assert '            "head": select_outputs(self.head, capacity.candidates),\n' in code
    assert '        head = state["head"](x=decoder)\n' in code
    assert plain == printed(capsys, "transformer-base", "--decode", "--code")
    assert "select_outputs" not in plain
    assert "head computes the logits of the pieces that a batch may need" in passes


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (('without=["casts"]', "precision=float32"), "the pass 'casts' would not run"),
        (('without=["unpad"]', "padding=unpadded"), "'unpadded' needs the pass 'unpad'"),
        (("parallel.tensor=2", "precision=float16"), "loss scaling does not support"),
        (("activation_checkpointing=encoder.*",), "did you mean 'model.encoder.*'?"),
    ],
)
def test_passes_of_a_run_that_training_refuses_are_not_shown(
    capsys: Capture, options: tuple[str, ...], problem: str
) -> None:
    """With the place in the run; the tree of its nodes needs no passes, and no data."""
    run = ["multi30k-en-de", *(word for one in options for word in ("--set", one))]

    assert main(["show", *run, "--passes"]) == 1
    said = capsys.readouterr().err
    assert problem in said
    assert "multi30k-en-de.json:" in said
    assert main(["show", *run, "-q"]) == 0


def test_a_misspelled_run_gets_the_name_of_the_run(capsys: Capture) -> None:
    """Names of specs and of runs can be given, so both are suggested."""
    assert main(["show", "multi30k-ende", "--passes"]) == 1
    assert "did you mean 'multi30k-en-de'?" in capsys.readouterr().err


def test_a_model_that_does_not_decode_has_no_code_of_decoding(capsys: Capture) -> None:
    """The error names the option, and a way out."""
    assert main(["show", "vit", "--code", "--decode"]) == 1
    assert "does not decode" in capsys.readouterr().err


def test_weights_are_listed_by_path_and_shape(capsys: Capture) -> None:
    """docs/importing.md sends authors of tables here."""
    text = printed(capsys, "transformer-tiny", "--weights")

    lines = [line.split() for line in text.splitlines()]
    assert ["encoder.0.self_attention.f.query.weight", "128", "×", "128"] in lines
    assert main(["show", "transformer-tiny", "--weights", "--code"]) == 1


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Let commands print to a terminal of a width."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))


def test_a_list_of_everything_fits_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """24 lines of 80 characters, with the number of each kind."""
    on_a_terminal(monkeypatch, 80)

    assert main(["list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:2] == ["specs", str(len(shipped_names("models")))]


def test_a_list_of_a_kind_is_wrapped_and_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words are those that a program reads."""
    assert main(["list", "specs"]) == 0
    whole = capsys.readouterr().out
    on_a_terminal(monkeypatch, 60)

    assert main(["list", "specs"]) == 0

    wrapped = capsys.readouterr().out
    assert wrapped.split() == whole.split()
    assert max(map(len, wrapped.splitlines())) <= 60
