"""`weft translate` and `weft score`: search, sampling, constraints and JSON output."""

from __future__ import annotations

import bz2
import gzip
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.blocks.kernels import quantized
from weft.blocks.kernels.prepacked import PackedLinear, can_pack
from weft.runtime import api
from weft.runtime.analysis.attention_weights import recording
from weft.runtime.cli.main import main
from weft.runtime.data.batches import pad_rows
from weft.runtime.data.tokenizer import Tokenizer
from weft.runtime.train.context import Result

from .piped import piped

pytestmark = pytest.mark.integration

LINES = ["sun moon", "tree", "river stone bird wind leaf"]
Translate = Callable[..., list[str]]


@pytest.fixture(scope="module")
def folders(toy_trained: Result) -> Path:
    """Return the folder of a run with three checkpoints of a barely trained model."""
    assert toy_trained.checkpoint is not None
    return toy_trained.checkpoint.parent


@pytest.fixture
def translate(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Translate:
    """Return a function that runs `weft translate` on lines and returns its output."""

    def run(
        *options: str, lines: Sequence[str] = LINES, code: int = 0, name: str = "000008"
    ) -> list[str]:
        return piped(["translate", str(folders / name), *options], lines, monkeypatch, code)

    return run


def test_json_lines_agree_with_text_lines(translate: Translate) -> None:
    """JSON has text, pieces and scores of each output; an empty line has no outputs."""
    lines = [*LINES, ""]

    plain = translate("--beam", "3", lines=lines)
    records = [json.loads(line) for line in translate("--beam", "3", "--json", lines=lines)]

    assert [record["line"] for record in records] == [1, 2, 3, 4]
    assert [record["source"] for record in records] == lines
    assert records[3]["translations"] == []
    assert [record["translations"][0]["text"] for record in records[:3]] == plain[:3]
    first = records[0]["translations"][0]
    assert set(first) == {"text", "score", "log_probability", "finished", "tokens"}


def test_a_metric_chooses_among_samples(translate: Translate) -> None:
    """By minimum Bayes risk: one text for each line, and with `--nbest` several by their values."""
    options = ("--metric", "chrf", "--samples", "6", "--seed", "3", "--max-extra", "3")

    texts = translate(*options)
    best = [line.split("\t") for line in translate(*options, "--nbest", "2")]

    assert len(texts) == len(LINES)
    assert texts == [next(text for n, _, text in best if n == str(row)) for row in (1, 2, 3)]
    for number in "123":
        scores = [float(score) for n, score, _ in best if n == number]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 100 for score in scores)


def test_files_are_translated_like_pipes(
    translate: Translate, folders: Path, tmp_path: Path
) -> None:
    """Plain text, gzip and a named pipe, as `<(...)` of a shell gives, have the same output."""
    text = "".join(f"{line}\n" for line in LINES).encode()
    plain, packed, pipe = tmp_path / "in", tmp_path / "in.gz", tmp_path / "pipe"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    expected = translate()

    for source in (plain, packed, pipe):
        out = tmp_path / "new" / f"{source.name}.out"
        assert main(["translate", str(folders / "000008"), str(source), "-o", str(out)]) == 0
        assert out.read_text(encoding="utf-8").splitlines() == expected

    writer.join()
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".out"] * 3


def test_an_n_best_line_begins_with_the_number_of_its_sentence(translate: Translate) -> None:
    """Number, score and text; the scores of one sentence do not rise."""
    rows = [line.split("\t") for line in translate("--nbest", "2", lines=[*LINES, ""])]

    assert [row[0] for row in rows] == ["1", "1", "2", "2", "3", "3", "4"]
    assert all(float(rows[at][1]) >= float(rows[at + 1][1]) for at in (0, 2, 4))
    assert rows[6][1:] == ["", ""]


@pytest.mark.parametrize(
    ("options", "said"),
    [((), False), (("--compile", "off"), False), (("--compile", "on"), True)],
    ids=["auto", "off", "on"],
)
def test_compiled_steps_give_the_same_output_and_are_reported(
    translate: Translate,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: bool,
) -> None:
    """One line on stderr reports compiled steps; `auto` does not compile for three lines."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    plain = translate("--min-length", "4", "--compile", "off")
    capsys.readouterr()

    assert translate("--min-length", "4", *options) == plain

    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("steps:")]
    assert [line.partition(";")[0] for line in told] == ["steps: compiled, requested"] * said


@pytest.mark.usefixtures("int8")
def test_products_in_int8_and_passes_that_are_left_out(
    translate: Translate, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounded products search like the others, and the checkpoint stays as it was."""
    monkeypatch.setattr(quantized, "LEAST", dict.fromkeys(quantized.LEAST, 1))
    rounded, packed = list[object](), list[object]()
    for kind, seen in ((quantized.Int8Linear, rounded), (PackedLinear, packed)):
        product: Callable[..., torch.Tensor] = vars(kind)["product"]

        def counted(
            *arguments: object, product: Any = product, seen: list[object] = seen
        ) -> torch.Tensor:
            seen.append(arguments[0])
            return product(*arguments)

        monkeypatch.setattr(kind, "product", counted)
    wanted = ("--beam", "3", "--nbest", "2", "--precision", "float32")
    before = {path: path.read_bytes() for path in (folders / "000008").iterdir()}

    plain = translate(*wanted)
    assert bool(packed) == can_pack(torch.float32)
    assert not rounded
    packed.clear()
    found = translate(*wanted, "--quantize", "int8", "--without", "prepack", "--without", "unpad")

    assert rounded
    assert not packed
    assert len(found) == len(plain) == 2 * len(LINES)
    scores = [[float(line.split("\t")[1]) for line in lines] for lines in (plain, found)]
    assert scores[1] == pytest.approx(scores[0], abs=0.1)
    assert {path: path.read_bytes() for path in (folders / "000008").iterdir()} == before
    translate("--without", "compile", code=2)


def test_alignment_and_attention_agree_with_forced_decoding(
    translate: Translate, folders: Path
) -> None:
    """Expected by hand: the predicting row, averaged over heads, without the source's end."""
    lines = ["sun moon tree", "", "river stone bird wind"]
    found = translate(
        "--alignment", "--attention", "--nbest", "2", "--min-length", "3", lines=lines
    )
    records = [json.loads(line) for line in found]
    model = api.open_model(folders / "000008")
    source, target = model.line_predictor().source, model.line_predictor().target

    assert [len(record["translations"]) for record in records] == [2, 0, 2]
    for record in (records[0], records[2]):
        assert record["source_tokens"] == source.pieces(source.encode(record["source"]))
        for one in record["translations"]:
            ids = [target.bos, *(pieces_of(target).index(piece) for piece in one["tokens"])]
            given = pad_rows([source.encode(record["source"])], source.pad, source.eos)
            with recording(model.module) as maps:
                model.module(
                    source=given, source_mask=given != source.pad, target=torch.tensor([ids])
                )
            assert one["attention"].keys() == maps.keys()
            for path, heads in one["attention"].items():
                torch.testing.assert_close(torch.tensor(heads), maps[path][0], atol=1e-4, rtol=0)
            mean_TS = maps["decoder.0.cross_attention.f"][0].mean(0)
            best = [row[:-1].argmax().item() for row in mean_TS[: len(one["tokens"])]]
            assert one["alignment"] == [[place, number] for number, place in enumerate(best)]


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """Return the piece of every id."""
    return tokenizer.pieces(range(tokenizer.vocab_size))


def test_lines_are_counted_only_with_progress(
    translate: Translate, capsys: pytest.CaptureFixture[str]
) -> None:
    """--progress counts lines on stderr; without it nothing is printed outside a terminal."""
    plain = translate(lines=[*LINES, ""])
    assert "lines" not in capsys.readouterr().err

    assert translate("--progress", lines=[*LINES, ""]) == plain
    assert "4 lines translated, " in capsys.readouterr().err


def test_nbest_widens_the_beam(translate: Translate) -> None:
    """Each line gets three outputs with scores, best first."""
    found = translate("--nbest", "3", "--alpha", "0", lines=LINES[:1])

    scores = [float(line.partition("\t")[0]) for line in found]
    assert len(found) == 3
    assert scores == sorted(scores, reverse=True)


def test_scores_equal_forced_scoring(
    translate: Translate, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`weft score` of the found outputs gives the scores of the search, to 1e-4."""
    options = ("--beam", "8", "--alpha", "0", "--max-extra", "90")
    records = [json.loads(line) for line in translate(*options, "--json")]
    best = [record["translations"][0] for record in records]
    assert all(one["finished"] for one in best)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    target.write_text("".join(one["text"] + "\n" for one in best), encoding="utf-8")
    files = ["--source", str(source), "--target", str(target)]

    capsys.readouterr()
    assert main(["score", str(folders / "000008"), *files, "--alpha", "0", "--json"]) == 0
    told = capsys.readouterr()
    scored = [json.loads(line) for line in told.out.splitlines()]

    for found, one in zip(best, scored, strict=True):
        if one["tokens"][:-1] == found["tokens"]:
            assert one["log_probability"] == pytest.approx(found["log_probability"], abs=1e-4)
            assert one["score"] == pytest.approx(found["score"], abs=1e-4)
        assert sum(one["log_probabilities"]) == pytest.approx(one["log_probability"])
    assert any(one["tokens"][:-1] == f["tokens"] for f, one in zip(best, scored, strict=True))
    assert "3 pairs" in told.err


def test_a_score_by_hand(folders: Path) -> None:
    """The expected score is summed from the log softmax of the model's own logits."""
    model = api.open_model(folders / "000008")
    source, target = model.line_predictor().source, model.line_predictor().target
    ids, wanted = source.encode("sun moon"), target.encode("moon")
    given = pad_rows([ids], source.pad, source.eos)
    total = 0.0
    for place, token in enumerate([*wanted, target.eos]):
        read = torch.tensor([[target.bos, *wanted[:place]]])
        outputs = model.module(source=given, source_mask=given != source.pad, target=read)
        logits = outputs["logits"][0, -1]
        total += logits.double().log_softmax(-1)[token].item()

    [found, empty] = model.score([("sun moon", "moon"), ("tree", "")])

    assert found.log_probability == pytest.approx(total, abs=1e-4)
    assert len(empty.tokens) == 1


def test_prefixes_and_phrases_are_read_from_files(translate: Translate, tmp_path: Path) -> None:
    """Each line has its own constraints; an empty line has none."""
    begin, hold = tmp_path / "begin", tmp_path / "hold"
    begin.write_text("moon\n\ntree\n", encoding="utf-8")
    hold.write_text("\nstone\tleaf\nsun\n", encoding="utf-8")

    found = translate("--prefix", str(begin), "--include", str(hold), "--beam", "4")

    assert found[0].startswith("moon")
    assert "stone" in found[1]
    assert "leaf" in found[1]
    assert found[2].startswith("tree")
    assert "sun" in found[2]


@pytest.mark.parametrize("option", ["--prefix", "--include"])
def test_a_wrong_line_of_a_constraint_loses_no_other_output(
    translate: Translate, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """Its output is empty, the error has its place, and the exit code is 1."""
    path = tmp_path / "constraints"
    path.write_bytes(b"\nr\xfct\n\n")

    first, wrong, last = translate(option, str(path), code=1)

    assert wrong == ""
    assert [first, last] == translate(lines=[LINES[0], LINES[2]])
    assert f"--> {path}:2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "encoded",
    [
        gzip.compress,
        bz2.compress,
        lambda text: text.decode().encode("utf-16"),
        lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
    ],
)
def test_lines_are_translated_alike_from_every_file(
    translate: Translate, tmp_path: Path, encoded: Callable[[bytes], bytes]
) -> None:
    """Compression, encoding and line ends are those of a file, not of its text."""
    path = tmp_path / "in"
    path.write_bytes(encoded("".join(f"{line}\n" for line in LINES).encode()))

    assert translate(str(path)) == translate()


def test_too_few_constraint_lines_are_refused(
    translate: Translate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the file and the missing line."""
    begin = tmp_path / "begin"
    begin.write_text("moon\n", encoding="utf-8")

    translate("--prefix", str(begin), code=1)

    assert "there is no line 2" in capsys.readouterr().err


def test_banned_phrases_do_not_occur(translate: Translate) -> None:
    """Each word of an unconstrained translation is avoided when banned."""
    words = {word for line in translate() for word in line.split()}
    assert words

    found = translate(*(part for word in words for part in ("--avoid", word)))

    assert words.isdisjoint(word for line in found for word in line.split())


def test_samples_follow_the_seed(translate: Translate) -> None:
    """The same seed gives the same outputs, whatever the order of lines."""
    first = translate("--top-k", "20", "--seed", "1")

    assert translate("--top-k", "20", "--seed", "1") == first
    assert translate("--top-k", "20", lines=LINES[::-1]) == first[::-1]
    assert translate("--top-k", "20", "--seed", "2") != first
    assert translate("--top-k", "1") == translate("--beam", "1")


def test_an_ensemble_of_one_model_twice_is_the_model(translate: Translate, folders: Path) -> None:
    """An ensemble with another model has other probabilities."""
    alone = [json.loads(line) for line in translate("--json")]
    twice = translate("--json", "--ensemble", str(folders / "000008"))
    mixed = translate("--json", "--ensemble", str(folders / "000004"))

    for one, other in zip(alone, map(json.loads, twice), strict=True):
        [mine], [theirs] = one["translations"], other["translations"]
        assert mine["text"] == theirs["text"]
        assert mine["log_probability"] == pytest.approx(theirs["log_probability"], abs=1e-4)
    assert [json.loads(line) for line in mixed] != alone


def test_settings_out_of_range_are_refused(
    translate: Translate, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the setting."""
    translate("--beam", "4", "--groups", "3", code=1)
    assert "'beam' 4 is not divisible by 'groups' 3" in capsys.readouterr().err

    translate("--top-p", "2", code=2)
    assert "Invalid value for '--top-p': it must be at most 1" in capsys.readouterr().err


@pytest.fixture
def running(folders: Path) -> Iterator[subprocess.Popen[str]]:
    """Start `weft translate` with pipes that stay open.

    It inherits what this process does on SIGINT, which a shell ignores in the background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", "translate", str(folders / "000008"), "--device", "cpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    with process:
        yield process
        process.kill()


def test_lines_of_an_open_pipe_are_answered_in_order(
    running: subprocess.Popen[str], translate: Translate
) -> None:
    """Each answer is read before the next line is written; then all others at once."""
    assert running.stdin is not None
    assert running.stdout is not None
    answers = []
    for line in LINES:
        running.stdin.write(f"{line}\n")
        running.stdin.flush()
        answers.append(running.stdout.readline().rstrip("\n"))

    rest, _ = running.communicate("".join(f"{line}\n" for line in LINES * 20))

    assert [*answers, *rest.splitlines()] == translate(lines=LINES * 21)
    assert running.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")
def test_an_interrupted_command_leaves_its_pipe(running: subprocess.Popen[str]) -> None:
    """The thread that waits for a line does not keep Python from ending."""
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write("tree\n")
    running.stdin.flush()
    running.stdout.readline()

    running.send_signal(signal.SIGINT)

    assert running.wait(timeout=60) == 130
    assert running.stderr is not None
    assert "Fatal" not in running.stderr.read()


def test_perplexity_of_scores_is_finite(folders: Path) -> None:
    """Every token of a text has a probability above 0."""
    model = api.open_model(folders / "000008")

    assert all(
        math.isfinite(one.log_probability) for one in model.score([("sun", "moon tree")] * 3)
    )


def test_a_file_that_evaluate_cannot_write_is_reported(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An output path below a file is refused."""
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "out")
    assert main(["evaluate", str(folders / "000008"), "-o", out]) == 1
    assert "cannot write the file" in capsys.readouterr().err
