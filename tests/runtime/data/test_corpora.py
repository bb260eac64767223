"""Named corpora: fetched once with mtdata, checked, and errors that say how to fix them.

A fake library replaces mtdata at its command-line interface.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from weft.runtime.data import corpora
from weft.runtime.data.corpora import fetched
from weft.runtime.data.prepare import prepare
from weft.runtime.data.readers.split import Split
from weft.specs.findings import InputError

from .pairs import bpe, pairs

NAME = "Toy-numbers-1-deu-eng"
DEU = ("eng", "deu")
LIBRARY = """
import argparse, os, sys
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("task")
for name in ("-l", "-tr", "-o", "-j"):
    parser.add_argument(name)
given = parser.parse_args()
here = Path(__file__).parent
with (here / "calls").open("a") as file:
    file.write(f"{given.task} {given.l} {given.tr} {os.environ['MTDATA']} {len(os.listdir())}\\\\n")
if (here / "fails").is_file():
    sys.exit((here / "fails").read_text())
folder = Path(given.o) / "train-parts"
folder.mkdir(parents=True)
for language, lines in (("deu", ["eins", "zwei"]), ("eng", ["one", "two"])):
    text = "".join(f"{line}\\\\n" for line in lines * 20)
    (folder / f"{given.tr}.{language}").write_text(text)
(folder / f"{given.tr}.meta.jsonl.gz").write_text("")
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a fake mtdata library and use a temporary cache folder."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "mtdata.py").write_text(LIBRARY.replace("\\\\n", "\\n"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    return folder


def named(*languages: str) -> dict[str, Any]:
    """Return a split of the named corpus."""
    return {"mtdata": {"names": [NAME], "languages": languages}}


def test_a_corpus_is_fetched_once(library: Path, tmp_path: Path) -> None:
    """Each language is on its side for any order in the name; the working folder is empty."""
    messages: list[str] = []

    [(source, target)] = fetched([NAME], DEU, {}, messages.append)

    assert source.read_text() == "one\ntwo\n" * 20
    assert target.read_text() == "eins\nzwei\n" * 20
    assert messages[0] == f"fetching {NAME} through mtdata"
    assert messages[1].startswith(f"{NAME}: 40 pairs in ")
    assert fetched([NAME], DEU, {}, messages.append) == [(source, target)]
    assert len(messages) == 2
    calls = (library / "calls").read_text().splitlines()
    assert calls == [f"get eng-deu {NAME} {tmp_path / 'cache' / 'mtdata'} 0"]
    assert [path.name for path in (tmp_path / "cache" / "corpora").iterdir()] == [f"{NAME}.eng-deu"]


def test_text_of_a_name_is_prepared_as_that_of_files(library: Path, tmp_path: Path) -> None:
    """Training, validation and test text are prepared, and opened again without fetching."""
    both = named("eng", "deu")
    data = pairs(".", both, both, test={"toy": both})

    made = prepare(data, bpe(20), tmp_path / "out")
    again = prepare(data, bpe(20), tmp_path / "out")

    assert made.report["train"]["kept"] == 40
    assert made.text("valid", 2) == [
        {"source": "one", "target": "eins"},
        {"source": "two", "target": "zwei"},
    ]
    assert again.report == made.report
    assert len((library / "calls").read_text().splitlines()) == 1


@pytest.mark.usefixtures("library")
def test_a_corpus_must_match_its_recorded_digest() -> None:
    """The recorded digest is accepted, any other is an error."""
    [(source, _)] = fetched([NAME], DEU, {})
    digest = json.loads((source.parent / "corpus.json").read_text())["sha256"]

    assert fetched([NAME], DEU, {NAME: digest})
    with pytest.raises(InputError, match="does not have the digest given in the run") as caught:
        fetched([NAME], DEU, {NAME: "0" * 64})
    assert "delete the folder" in caught.value.help


@pytest.mark.usefixtures("library")
def test_a_damaged_corpus_is_refused() -> None:
    """A file that was truncated after fetching raises an error."""
    [(source, _)] = fetched([NAME], DEU, {})
    source.write_text("one\n")

    with pytest.raises(InputError, match="a fetched corpus is damaged"):
        fetched([NAME], DEU, {})


@pytest.mark.parametrize(
    ("text", "problem", "way_out"),
    [
        ("requests.exceptions.ConnectionError: no host", "cannot be fetched", "with a network"),
        ("Exception: Could not find it", "mtdata cannot fetch", "mtdata list -id -l eng-deu"),
    ],
)
def test_an_error_of_the_library_is_reported(
    library: Path, tmp_path: Path, text: str, problem: str, way_out: str
) -> None:
    """The message has the library's last line of output and a fix; no partial folder remains."""
    (library / "fails").write_text(text)

    with pytest.raises(InputError, match=problem) as caught:
        fetched([NAME], DEU, {})

    assert text in caught.value.problem
    assert way_out in caught.value.help
    assert list((tmp_path / "cache" / "corpora").iterdir()) == []


@pytest.mark.usefixtures("library")
def test_an_unavailable_language_is_reported() -> None:
    """The message lists the available languages."""
    with pytest.raises(InputError, match="has no language 'fra'; available: deu, eng"):
        fetched([NAME], ("eng", "fra"), {})


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra to install."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.setattr(corpora, "LIBRARY", "no_such_library")

    with pytest.raises(InputError, match="is not installed") as caught:
        fetched([NAME], DEU, {})
    assert "weft[corpora]" in caught.value.help


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"names": [NAME]}, "languages\n  Field required"),
        ({"languages": DEU}, "names\n  Field required"),
        ({"names": [], "languages": DEU}, "at least 1 item"),
        ({"names": [NAME], "languages": DEU, "digests": {"x": "0"}}, "not in 'names'"),
        ({"names": ["../x-a-1-deu-eng"], "languages": DEU}, "pattern"),
        ({"names": ["--help"], "languages": DEU}, "pattern"),
        ({"names": [NAME], "languages": ["eng", "-o"]}, "pattern"),
    ],
)
def test_an_invalid_corpus_name_is_refused(value: dict[str, object], problem: str) -> None:
    """Validation fails before anything is fetched; a name is never an option or a path."""
    with pytest.raises(ValidationError, match=problem):
        Split.model_validate({"mtdata": value})
