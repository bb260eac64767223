"""Folders, corpora and the hub as sources of data."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from pydantic import ValidationError
from weft.blocks.registry import registry
from weft.extensions.interop.importing.hf import tokenizers_for
from weft.extensions.interop.importing.table import load_table
from weft.graphs.checker.check import check
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.data import corpora
from weft.runtime.data.corpora import fetched
from weft.runtime.data.folders import building, remove_leftover, resuming
from weft.runtime.data.hub import HubTokenizer
from weft.runtime.data.prepare import prepare
from weft.runtime.data.readers.split import Split
from weft.runtime.data.settings import HUB
from weft.specs.findings import InputError
from weft.specs.load import load

from .pairs import bpe, pairs


def test_a_folder_appears_at_the_end(tmp_path: Path) -> None:
    """The folder is absent while it is filled; no temporary folder remains."""
    folder = tmp_path / "deep" / "data"

    with building(folder, "marker") as fresh:
        (fresh / "marker").write_text("new")
        assert not folder.exists()

    assert (folder / "marker").read_text() == "new"
    assert list(folder.parent.iterdir()) == [folder]


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    """A failed rebuild keeps the old folder."""
    folder = tmp_path / "data"
    with building(folder, "marker") as fresh:
        (fresh / "marker").write_text("old")

    def fail() -> None:
        with building(folder, "marker") as fresh:
            (fresh / "marker").write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (folder / "marker").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_of_its_kind_is_replaced_completely(tmp_path: Path) -> None:
    """No file of the old folder is in the new one."""
    folder = tmp_path / "data"
    for name in ("first", "second"):
        with building(folder, "marker") as fresh:
            (fresh / "marker").touch()
            (fresh / name).touch()

    assert sorted(path.name for path in folder.iterdir()) == ["marker", "second"]
    assert list(tmp_path.iterdir()) == [folder]


def test_other_folders_and_files_are_not_replaced(tmp_path: Path) -> None:
    """A folder with other content, or a file, raises an error; an empty folder is replaced."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()

    for name in ("papers", "file"):
        with pytest.raises(InputError, match="exists and does not contain marker"):  # noqa: SIM117
            with building(tmp_path / name, "marker"):
                pytest.fail("the body must not run")
    with building(tmp_path / "empty", "marker") as fresh:
        (fresh / "marker").touch()

    assert (tmp_path / "papers" / "thesis").exists()
    assert (tmp_path / "empty" / "marker").exists()


def test_one_process_works_and_the_others_wait(tmp_path: Path) -> None:
    """The second process gets the lock after the first is done, and finds its result."""
    folder, messages = tmp_path / "data", list[str]()
    waiting, seen = threading.Event(), list[bool]()

    def callback(text: str) -> None:
        messages.append(text)
        waiting.set()

    def second() -> None:
        with resuming(folder, "marker", "key", callback):
            seen.append((folder / "marker").is_file())

    thread = threading.Thread(target=second)
    with resuming(folder, "marker", "key", messages.append) as (_, fresh):
        thread.start()
        assert waiting.wait(10)
        (fresh / "marker").touch()
    thread.join(10)

    assert messages == [f"waiting for another process that prepares {tmp_path / '.data.work'}"]
    assert seen == [True]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_leftover_of_finished_work_is_removed(tmp_path: Path) -> None:
    """The process was killed between the renaming and the removal of its intermediate files."""
    folder, work = tmp_path / "data", tmp_path / ".data.work"
    folder.mkdir()
    work.mkdir()
    (work / "train.lines").write_text("large")

    remove_leftover(folder)

    assert list(tmp_path.iterdir()) == [folder]
    remove_leftover(folder)


def test_the_work_of_another_process_is_no_leftover(tmp_path: Path) -> None:
    """It holds the lock of its working folder."""
    folder = tmp_path / "data"
    with resuming(folder, "marker", "key", lambda _: None) as (work, fresh):
        remove_leftover(folder)

        assert work.is_dir()
        (fresh / "marker").write_text("done")
    assert list(tmp_path.iterdir()) == [folder]


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


SMALL = {"d_model": 16, "heads": 2, "kv_heads": 1, "d_ff": 24, "layers": 1}
BEGIN, END = "<s>", "</s>"
Save = Callable[..., Path]


@pytest.fixture(scope="module")
def file() -> bytes:
    """Return a small tokenizer: bytes and a few words, with a beginning token before each text."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra 'tokenizers'")
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers  # noqa: PLC0415

    made: Any = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["sun moon tree river"] * 20, trainer)
    made.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}", special_tokens=[(BEGIN, 0), (END, 1)]
    )
    text: str = made.to_str()
    return text.encode()


@pytest.fixture
def saved(tmp_path: Path) -> Save:
    """Return a function that saves a checkpoint of a small Llama with a tokenizer."""

    def make(data: bytes, vocab: int = 300, name: str = HUB) -> Path:
        graph = check(load("llama").form, registry(), {**SMALL, "vocab": vocab})
        model = build(graph).eval()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
        state = {"imported": {"tokens": {"end": 1}}}
        contents = Contents(
            graph=graph, weights=weights_of(model, graph), state=state, tokenizers={name: data}
        )
        return save(tmp_path / "checkpoint", contents)

    return make


def test_a_prompt_begins_and_does_not_end(file: bytes) -> None:
    """The special token before a text is kept, the one after it is removed; text round-trips."""
    tokenizer = HubTokenizer(file, ends={1})

    ids = tokenizer.prompt("sun räven 🙂")

    assert ids[0] == 0
    assert 1 not in ids
    assert tokenizer.decode(ids) == "sun räven 🙂"
    assert tokenizer.pieces(ids)[:2] == [BEGIN, "sun"]
    assert tokenizer.prompt("") == [0]
    assert HubTokenizer(file).prompt("")[-1] == 1
    assert max(ids) < tokenizer.vocab_size <= 300
    assert tokenizer.pieces([299 + 1]) == [""]


def test_a_checkpoint_continues_text(file: bytes, saved: Save) -> None:
    """Generating from text gives the same outputs as from its ids."""
    model = weft.open(saved(file))
    tokenizer = HubTokenizer(file, ends={1})

    [written] = model.generate_text(["sun moon"], max_new=6)

    [[one]] = model.generate([tokenizer.prompt("sun moon")], max_new=6)
    assert written == tokenizer.decode(one.tokens)


def test_a_missing_tokenizer_library_names_the_extra(
    saved: Save, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the extra, and the option to give ids."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    folder = saved(b"{}")

    assert main(["generate", str(folder)]) == 1

    output = capsys.readouterr().err
    assert "pip install 'weft[tokenizers]'" in output
    assert "--ids" in output


def test_an_invalid_tokenizer_is_reported(saved: Save, file: bytes) -> None:
    """A damaged file, and the tokenizer of another model, raise errors."""
    with pytest.raises(InputError, match="not a tokenizer"):
        weft.open(saved(b"\xff{")).generate_text(["sun"])
    with pytest.raises(InputError, match="but the model has 40"):
        weft.open(saved(file, vocab=40)).generate_text(["sun"])


def test_an_imported_decoder_takes_it_along(tmp_path: Path) -> None:
    """Only decoders without another tokenizer copy it; translation models do not."""
    (tmp_path / HUB).write_bytes(b"{}")
    decoder = check(load("llama").form, registry(), {**SMALL, "vocab": 9})
    translator = check(load("transformer-tiny").form, registry(), {"vocab": 9})
    table, _ = load_table("llama")

    assert tokenizers_for(table, tmp_path, decoder) == ({HUB: b"{}"}, ())
    assert tokenizers_for(table, tmp_path, translator)[0] == {}
    (tmp_path / "t.model").write_bytes(b"other")
    other_table = table.model_copy(update={"tokenizers": ("t.model",)})
    assert tokenizers_for(other_table, tmp_path, decoder)[0] == {"t.model": b"other"}
