"""New runs and copies of shipped files."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import weft
from weft.graphs.ir.canonical import fingerprint
from weft.runtime.cli.main import main
from weft.runtime.scaffold.held_out import aligned_rows, hold_out
from weft.runtime.scaffold.packages import ENTRY_POINTS
from weft.runtime.scaffold.runs import TASKS
from weft.runtime.scaffold.survey import survey
from weft.runtime.train.plan import load_run
from weft.specs.findings import InputError, SpecError

ROWS = 60
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


def sentence(number: int) -> str:
    """Return a sentence of its own for each number."""
    return " ".join(WORDS[int(digit)] for digit in f"{number:03}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with files for each task, which is the current one."""
    monkeypatch.chdir(tmp_path)
    texts = [sentence(number) for number in range(ROWS)]
    for name in ("a.en", "a.fr", "b.en", "b.fr"):
        Path(name).write_text("".join(f"{text}\n" for text in texts))
    with Path("a.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "review", "stars"])
        rows.writerows([n, f'{text}, "{n}"', n % 2] for n, text in enumerate(texts))
    tagged = [{"text": text, "tags": "A B C"} for text in texts]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in tagged))
    trees = [f"(S (N {text.split()[0]}) (V {text.split()[1]}))" for text in texts]
    Path("a.trees").write_text("\n".join(trees))
    sounds = [f"{n}.wav\t{text}" for n, text in enumerate(texts)]
    Path("a.tsv").write_text("\n".join(["audio\ttext", *sounds]))
    return tmp_path


FILES = {
    "translation": "a.en a.fr",
    "language-model": "a.en",
    "classification": "a.csv --field text=review --field label=stars",
    "tagging": "a.jsonl",
    "parsing": "a.trees --valid a.trees",
}


@pytest.mark.parametrize("task", FILES)
@pytest.mark.integration
@pytest.mark.usefixtures("folder")
def test_a_new_run_has_no_mistake(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is checked with its files, and warns of nothing."""
    assert main(["new", task, "--train", *FILES[task].split()]) == 0
    capsys.readouterr()

    assert main(["check", f"{task}.json"]) == 0

    assert capsys.readouterr().err == ""


def test_every_task_is_tried() -> None:
    """Sounds need the extra `audio`, so `speech` is not checked with its files."""
    assert {*FILES, "speech"} == {*TASKS}


@pytest.mark.usefixtures("folder")
def test_a_run_of_sounds_names_the_manifest() -> None:
    """Its sounds are looked up below the folder of the manifest when it is checked."""
    with pytest.raises(SpecError, match=r"0\.wav"):
        weft.new_run("speech", ["a.tsv"], valid=["a.tsv"])


@pytest.mark.usefixtures("folder")
def test_the_warm_up_ends_within_the_run() -> None:
    """A tenth of the updates, however few they are."""
    weft.new_run("translation", ["a.en", "a.fr"])

    run, _ = load_run("translation.json")

    assert [piece.over for piece in run.schedule.pieces or ()] == [0.1, None]
    assert run.evaluate.every <= run.updates


@pytest.mark.usefixtures("folder")
def test_nothing_is_overwritten() -> None:
    """A second call names the file, and leaves it as it is."""
    weft.new_run("translation", ["a.en", "a.fr"])
    Path("translation.json").write_text("mine")

    with pytest.raises(InputError, match="not overwritten"):
        weft.new_run("translation", ["a.en", "a.fr"])

    assert Path("translation.json").read_text() == "mine"


@pytest.mark.usefixtures("folder")
def test_held_out_rows_are_those_that_do_not_train() -> None:
    """All rows are in one of the parts, in order, and no text is in two."""
    run = weft.new_run("translation", ["a.en", "a.fr"])
    assert run.held_out is not None

    parts = [
        run.held_out.joinpath(f"{part}.en").read_text().splitlines()
        for part in ("train", "valid", "test")
    ]

    assert sorted(text for part in parts for text in part) == sorted(map(sentence, range(ROWS)))
    assert [len(part) for part in parts] == [ROWS - 6, 3, 3]


def test_equal_texts_are_held_out_together(tmp_path: Path) -> None:
    """Otherwise the model would be tested on sentences that it was trained on."""
    file = tmp_path / "a.en"
    file.write_text("".join(f"{sentence(number % 30)}\n" for number in range(120)))

    parts = hold_out(aligned_rows([file]), [file], 120, tmp_path / "parts", ["valid"])

    train, valid = ({*paths[0].read_text().splitlines()} for paths in parts.values())
    assert valid
    assert not train & valid


@pytest.mark.parametrize(
    ("first", "delimiter"), [("", ";"), ("", "\t"), ("", "|"), ("sep=;\n", ";"), ("sep=~\n", "~")]
)
def test_a_table_names_its_delimiter_if_that_of_its_name_separates_nothing(
    first: str, delimiter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spreadsheets write `;` where the comma is decimal; the texts have commas and delimiters."""
    monkeypatch.chdir(tmp_path)
    with Path("a.csv").open("w", encoding="utf-8-sig") as file:
        file.write(first)
        rows = csv.writer(file, delimiter=delimiter)
        rows.writerow(["review", "stars"])
        rows.writerows([f"{sentence(n)}, {delimiter}{n}", n % 2] for n in range(ROWS))

    assert weft.new_run("classification", ["a.csv"]).rows == ROWS

    text = Path("classification.json").read_text()
    assert text.count(f'"delimiter": {json.dumps(delimiter)}') == (0 if "~" in first else 3)
    assert re.findall(r'"from": "(\w+)"', text) == ["review", "stars"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a b,x\na c,y\na d,x\n", "the first row has no names: 'x' is also a value of 'label'"),
        (b"review\na b\n", "a row has 1 field, but needs text and label"),
    ],
)
def test_a_table_without_names_or_classes_is_refused(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    """Otherwise its first record would silently be lost, or the message names a field."""
    file = tmp_path / "a.csv"
    file.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(problem)):
        weft.new_run("classification", [file])


@pytest.mark.usefixtures("folder")
def test_a_table_that_is_divided_keeps_its_quotes() -> None:
    """Each part has the names of the fields, and rows with commas and quotes."""
    run = weft.new_run("classification", ["a.csv"], fields={"text": "review", "label": "stars"})
    assert run.held_out is not None

    with (run.held_out / "train.csv").open() as file:
        rows = list(csv.DictReader(file))

    assert rows[0]["review"] == f'{sentence(int(rows[0]["id"]))}, "{rows[0]["id"]}"'


def test_validation_files_are_used_as_they_are(folder: Path) -> None:
    """Nothing is written but the run."""
    before = {*folder.iterdir()}

    run = weft.new_run("translation", ["a.en", "a.fr"], valid=["b.en", "b.fr"], out="c.json")

    assert {*folder.iterdir()} - before == {folder / "c.json"}
    assert run.held_out is None


def test_a_failed_run_leaves_nothing(folder: Path) -> None:
    """A name that is none is found after rows were held out."""
    before = {*folder.iterdir()}

    with pytest.raises(SpecError):
        weft.new_run("translation", ["a.en", "a.fr"], name="two words")

    assert {*folder.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("translation --train a.en", "a.en FILE"),
        ("translation --train a.en a.fx", "did you mean 'a.fr'?"),
        ("classification --train a.csv", "--field text=NAME"),
        ("classification --train a.csv --field text=reviw", "did you mean 'review'?"),
        ("classification --train a.en", ".jsonl"),
        ("parsing --train a.trees", "--valid"),
    ],
)
def test_a_wrong_call_names_a_way_out(
    words: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and nothing is written."""
    before = {*folder.iterdir()}

    assert main(["new", *words.split()]) == 1

    assert said.replace("a.en FILE", "FILE.source FILE.target") in capsys.readouterr().err
    assert {*folder.iterdir()} == before


@pytest.mark.usefixtures("folder")
def test_a_hostile_name_stays_a_text() -> None:
    """It is data in a JSON text, and no comment, setting or placeholder."""
    name = 'x",\n "seed": 7, //$vocab.en'
    Path(name).mkdir(parents=True)
    source = Path(name) / 'y" $peak.en'
    source.write_text(Path("a.en").read_text())

    weft.new_run("language-model", [source], valid=["a.en"])

    run, _ = load_run("language-model.json")
    assert run.seed == 1
    assert run.doc.endswith('y" $peak.en.')


def test_of_a_large_file_only_the_beginning_is_read(tmp_path: Path) -> None:
    """The number of rows is estimated from the size: 10 MB of lines of 100 bytes."""
    file = tmp_path / "a.txt"
    file.write_text(f"{'word ' * 19}end.\n" * 100_000)

    looks = survey(lambda files: {"lines": {"text": files}}, [file], ["text"])

    assert looks.rows < 50_000
    assert math.isclose(looks.all_rows, 100_000, rel_tol=0.01)


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    """A kilobyte can become a line that fills the memory."""
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(b"a" * (1 << 23)))

    with pytest.raises(InputError, match="first line is longer"):
        survey(lambda files: {"lines": {"text": files}}, [file], ["text"])


@pytest.mark.integration
def test_a_training_ends_with_the_test_score_and_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of one's files tells how good it is and how to use it; the command works."""
    monkeypatch.chdir(tmp_path)
    Path("a.tsv").write_text(
        "text\tlabel\n"
        + "".join(f"{word} {number}\t{word}\n" for number in range(30) for word in ("sun", "moon"))
    )
    assert main(["new", "classification", "--train", "a.tsv"]) == 0
    short = ["--set", "updates=2", "--set", "evaluate.every=2", "--set", "threads=1"]

    assert main(["train", "classification.json", *short]) == 0

    printed = capsys.readouterr().err
    assert "\ntest: 3 rows" in printed
    assert "kernels:" not in printed
    command = """echo '{"text": "..."}' | weft predict outputs/classification"""
    assert printed.splitlines()[-1] == f"next      {command}"
    Path("b.jsonl").write_text('{"text": "sun 5"}\n')
    assert main(["predict", "outputs/classification", "b.jsonl"]) == 0
    assert capsys.readouterr().out.strip() in ('"sun"', '"moon"')


@pytest.mark.integration
@pytest.mark.parametrize(
    ("task", "files", "command"),
    [("translation", ["a.en", "a.fr"], "translate"), ("language-model", ["a.en"], "generate")],
)
@pytest.mark.usefixtures("folder")
def test_the_next_command_of_a_run_without_answers_fits_its_inputs(
    task: str, files: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run says nothing of what its model is for; the command works."""
    assert main(["new", task, "--train", *files, "--out", "run.json"]) == 0
    changes = ["predict=null", "answers=null", 'evaluate={"every": 2, "best": "nll"}']
    changes += ["updates=2", "threads=1"]
    words = [word for change in changes for word in ("--set", change)]

    assert main(["train", "run.json", "--out", "out", *words]) == 0

    assert capsys.readouterr().err.splitlines()[-1] == f"next      weft {command} out < FILE"
    Path("in.txt").write_text("alpha\n")
    assert main([command, "out", "in.txt"]) == 0


@pytest.mark.parametrize("parent", ["transformer-tiny", "transformer-prenorm", "classification"])
def test_a_copy_is_the_same_graph(parent: str, tmp_path: Path) -> None:
    """A spec, a variant, and an objective that holds a model."""
    path = weft.new_spec(parent, name=parent, out=tmp_path / "copy.json")

    assert fingerprint(weft.load(path).graph()) == fingerprint(weft.load(parent).graph())


def test_a_copy_keeps_its_params(tmp_path: Path) -> None:
    """The width of a copy can be changed, and what follows from it changes too."""
    path = weft.new_spec("transformer-prenorm", out=tmp_path / "copy.json")

    wide = weft.load(path, d_model=64, heads=4).graph()

    assert wide.weights()["source_embedding.weight"][1] == 64


def test_a_copy_overwrites_nothing(tmp_path: Path) -> None:
    """The file may be the user's work."""
    (tmp_path / "copy.json").write_text("mine")

    with pytest.raises(InputError, match="not overwritten"):
        weft.new_spec("transformer-tiny", out=tmp_path / "copy.json")


@pytest.mark.integration
@pytest.mark.parametrize("kind", ENTRY_POINTS)
def test_the_test_of_a_new_package_passes(kind: str, tmp_path: Path) -> None:
    """It runs in the new folder, as the command prints."""
    folder = weft.new_package(kind, f"my-{kind}", out=tmp_path / "package")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.integration
def test_an_installed_new_package_is_found_by_name(tmp_path: Path) -> None:
    """Its entry points are written as pip writes them."""
    folder = weft.new_package("block", "my-part", out=tmp_path / "package")
    project = (folder / "pyproject.toml").read_text()
    about = folder / "my_part-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-part\nVersion: 0.1.0\n")
    points = project.partition("[project.entry-points.")[2].partition("[tool")[0]
    (about / "entry_points.txt").write_text(f"[{points}".replace('"', ""))

    done = subprocess.run(
        [sys.executable, "-m", "weft", "check", "example.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("example: valid")


@pytest.mark.parametrize("name", ["My Block", "../up", "a;b", "1st", "x" * 3 + "\n"])
def test_a_name_that_python_cannot_import_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would become names of files, of classes and of entry points."""
    monkeypatch.chdir(tmp_path)

    assert main(["new", "block", "--", name]) == 1

    assert list(tmp_path.iterdir()) == []
