"""Prepared data in a folder, in memory and in a bucket: equal data, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.data.prepare import Prepared, prepare, records_of
from weft.runtime.data.settings import split_address
from weft.runtime.data.store import cache, manifest, upload
from weft.runtime.data.table_settings import DataSettings
from weft.runtime.model.opening import open_model
from weft.runtime.train.plan import run_of
from weft.runtime.train.run import Run
from weft.specs.findings import InputError, SpecError

from ..pairs import SIDES, bpe, changed, lines, pairs, texts

SMALL = bpe(50)
WORDS = ("one", "two", "three", "four", "five", "six", "seven")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set an empty cache, and remove what is in memory."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    return tmp_path / "cache" / "prepared"


def written(root: Path, **more: Any) -> DataSettings:
    """Write 49 pairs for training, 2 for validation and 1 for a test; return their settings."""
    root.mkdir()
    rows = [f"{a} {b}" for a in WORDS for b in WORDS]
    for name, listed in (("train", rows), ("valid", ["one", "two"]), ("test", ["six"])):
        for side in SIDES:
            (root / f"{name}.{side}").write_text("".join(f"{row}\n" for row in listed))
    split = {name: lines([f"{name}.source"], [f"{name}.target"]) for name in ("train", "valid")}
    test = {"small": lines(["test.source"], ["test.target"])}
    return pairs(root, split["train"], split["valid"], test=test, **more)


@pytest.fixture
def data(tmp_path: Path) -> DataSettings:
    """Return settings of written pairs."""
    return written(tmp_path / "text")


def elsewhere(data: DataSettings, prepared: Prepared, **keys: Any) -> DataSettings:
    """Return settings of the same data on a machine without its text."""
    return changed(data, root="/nowhere", prepared=prepared.address, **keys)


def fetch(data: DataSettings, tmp_path: Path) -> Prepared:
    """Return prepared data from elsewhere."""
    return prepare(data, SMALL, tmp_path / "unused")


def objects() -> list[str]:
    """Return the objects in memory, largest first."""
    named = {name: file.getbuffer().nbytes for name, file in MemoryFileSystem.store.items()}
    return sorted((name for name in named if "/objects/" in name), key=lambda name: -named[name])


def test_prepared_data_travels_without_the_training_text(
    data: DataSettings, tmp_path: Path
) -> None:
    """Its rows, and the texts of validation and test sets, are as where it was prepared."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket/wmt")
    far = fetch(elsewhere(data, local), tmp_path)

    assert [texts(far, side) for side in SIDES] == [texts(local, side) for side in SIDES]
    assert far.text("valid") == [{"source": word, "target": word} for word in ("one", "two")]
    assert far.text("small") == [{"source": "six", "target": "six"}]
    assert far.digest == local.digest
    assert not (tmp_path / "unused").exists()
    assert not any("train.source" in str(path) for path in far.folder.rglob("*"))


def test_the_address_depends_on_the_content_alone(data: DataSettings, tmp_path: Path) -> None:
    """Not on times, paths, or the machine: the same text elsewhere has the same address."""
    (tmp_path / "other").mkdir()
    twin = written(tmp_path / "other" / "text")
    os.utime(tmp_path / "other" / "text" / "train.source", (1, 1))
    first = prepare(data, SMALL, tmp_path / "a", to="memory://bucket")
    second = prepare(twin, SMALL, tmp_path / "b", to="memory://bucket")

    assert first.address == second.address


def test_the_address_is_the_digest_of_the_manifest(data: DataSettings, tmp_path: Path) -> None:
    """And the name of each object is the digest of its content."""
    address = str(prepare(data, SMALL, tmp_path / "out", to=str(tmp_path / "shared")).address)

    for path in (p for p in (tmp_path / "shared").rglob("*") if p.is_file()):
        assert path.stem == hashlib.sha256(path.read_bytes()).hexdigest()
    assert Path(address).is_file()


def test_files_of_several_pieces_are_put_together(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of an odd number of bytes ends within a number."""
    monkeypatch.setattr(upload, "PIECE", 101)
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    far = fetch(elsewhere(data, local), tmp_path)

    for name in ("train/source.bin", "valid/header.json", "tokenizer.model"):
        assert (far.folder / name).read_bytes() == (local.folder / name).read_bytes()


def test_one_copy_serves_many_runs(data: DataSettings, tmp_path: Path) -> None:
    """The second run reads nothing from the place, which may be gone."""
    settings = elsewhere(data, prepare(data, SMALL, tmp_path / "out", to="memory://bucket"))
    first = fetch(settings, tmp_path)
    MemoryFileSystem.store.clear()

    assert fetch(settings, tmp_path).folder == first.folder


def test_a_folder_of_the_data_root_is_a_place(data: DataSettings, tmp_path: Path) -> None:
    """Its path is relative to the root, as those of all files."""
    local = prepare(data, SMALL, tmp_path / "out", to=str(tmp_path / "text" / "shared"))
    name = Path(str(local.address)).name

    far = fetch(changed(data, prepared=f"shared/{name}"), tmp_path)
    assert texts(far, "source") == texts(local, "source")


def test_what_was_fetched_can_be_uploaded_to_another_place(
    data: DataSettings, tmp_path: Path
) -> None:
    """With the same digest."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://one")
    copied = prepare(elsewhere(data, local), SMALL, tmp_path / "unused", to="memory://two")

    assert copied.address == str(local.address).replace("one", "two")


def test_an_interrupted_upload_has_no_manifest_and_goes_on(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects that are there are not written again."""
    write, written_names = MemoryFileSystem.pipe_file, list[str]()

    def fails(system: MemoryFileSystem, path: str, value: bytes, **options: Any) -> None:
        if len(written_names) == 3:
            raise OSError("the network is down")
        written_names.append(path)
        write(system, path, value, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", fails)
    with pytest.raises(InputError, match=r"cannot write 'objects/.*the network is down") as caught:
        prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    assert "run the same command again" in str(caught.value.help)
    assert not [name for name in MemoryFileSystem.store if name.endswith(".json")]

    first = set(MemoryFileSystem.store)
    written_names[:] = [""] * 4
    address = prepare(data, SMALL, tmp_path / "out", to="memory://bucket").address
    again = [name for name in written_names[4:] if not name.endswith(EMPTY)]
    assert not first & {*again}
    assert str(address).removeprefix("memory:/") in MemoryFileSystem.store


EMPTY = hashlib.sha256().hexdigest()
"""Name of the object without content, with which a place is tried."""


def test_an_interrupted_fetch_goes_on(data: DataSettings, tmp_path: Path) -> None:
    """Only the object that was missing is read by the next call."""
    settings = elsewhere(data, prepare(data, SMALL, tmp_path / "out", to="memory://bucket"))
    missing = objects()[-2]
    content = MemoryFileSystem.store.pop(missing)
    with pytest.raises(InputError, match=f"there is no '{missing.removeprefix('/bucket/')}'"):
        fetch(settings, tmp_path)

    for name in objects():
        del MemoryFileSystem.store[name]
    MemoryFileSystem.store[missing] = content
    assert len(fetch(settings, tmp_path).train) == 49


@pytest.mark.parametrize("change", [lambda b: bytes([b[0] ^ 1]) + b[1:], lambda b: b[:-1]])
def test_a_changed_object_is_refused(
    change: Callable[[bytes], bytes], data: DataSettings, tmp_path: Path, empty_cache: Path
) -> None:
    """Nothing of it is in the cache."""
    settings = elsewhere(data, prepare(data, SMALL, tmp_path / "out", to="memory://bucket"))
    name = objects()[0]
    content = MemoryFileSystem.store[name].getvalue()
    MemoryFileSystem("memory").pipe_file(name, change(content))

    with pytest.raises(InputError, match="the prepared data is damaged: 'objects/"):
        fetch(settings, tmp_path)
    assert [path for path in empty_cache.iterdir() if not path.name.startswith(".")] == []


def test_a_changed_manifest_is_refused(data: DataSettings, tmp_path: Path) -> None:
    """The address has its digest."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    name = str(local.address).removeprefix("memory:/")
    content = MemoryFileSystem.store[name].getvalue()
    MemoryFileSystem("memory").pipe_file(name, content.replace(b'"kept": 49', b'"kept": 48'))

    with pytest.raises(InputError, match="does not have the SHA-256"):
        fetch(elsewhere(data, local), tmp_path)


def test_data_of_other_settings_is_refused_before_it_is_fetched(
    data: DataSettings, tmp_path: Path, empty_cache: Path
) -> None:
    """The message names what differs."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    settings = elsewhere(data, local, filter={"max_length": 5})

    with pytest.raises(InputError, match="prepared with other settings: tokenizers, filter"):
        prepare(settings, bpe(49), tmp_path / "unused")
    assert not any(empty_cache.glob("*/train"))


def hostile(prepared: Prepared, **fields: Any) -> str:
    """Write a manifest with other fields, as a stranger could; return its address."""
    place, digest = split_address(str(prepared.address))
    value = json.loads(MemoryFileSystem.store[f"/bucket/{digest}.json"].getvalue())
    content = json.dumps(value | fields, sort_keys=True).encode()
    name = hashlib.sha256(content).hexdigest()
    MemoryFileSystem("memory").pipe_file(f"/bucket/{name}.json", content)
    return f"{place}/{name}.json"


@pytest.mark.parametrize(
    "name",
    [
        "../outside.model",
        "/etc/passwd",
        "files/../../outside",
        "train/./a",
        "other/a.bin",
        "prepared.json",
        ".hidden",
        "files/a\n",
        "files//a",
        "train/..",
    ],
)
def test_a_manifest_cannot_write_elsewhere(
    name: str, data: DataSettings, tmp_path: Path, empty_cache: Path
) -> None:
    """Names that leave the folder, or replace what belongs to it, are refused."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    address = hostile(local, files={name: []})

    with pytest.raises(InputError, match=r"not a manifest that this version reads|damaged") as no:
        fetch(changed(elsewhere(data, local), prepared=address), tmp_path)
    assert no.value.help
    assert [path for path in empty_cache.iterdir() if not path.name.startswith(".")] == []


def with_file(prepared: Prepared, name: str, content: bytes) -> str:
    """Return the address of the data with another content of one file."""
    digest = hashlib.sha256(content).hexdigest()
    MemoryFileSystem("memory").pipe_file(f"/bucket/objects/{digest[:2]}/{digest}", content)
    _, known = split_address(str(prepared.address))
    files = json.loads(MemoryFileSystem.store[f"/bucket/{known}.json"].getvalue())["files"]
    return hostile(prepared, files={**files, name: [[digest, len(content)]]})


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("train/source.bin", lambda b: b"\xff" * len(b), "has ids that its tokenizer lacks"),
        ("train/source.offsets", lambda b: b[:8] + b[16:24] + b[8:16] + b[24:], "decreasing"),
        ("train/header.json", lambda b: b.replace(b'"<u2"', b'"|O"'), "header is damaged"),
        ("train/header.json", lambda b: b.replace(b"source", b"../source"), "elsewhere"),
        ("train/header.json", lambda b: b.replace(b'"pairs": 49', b'"pairs": 50'), "damaged"),
        ("train/header.json", lambda b: b + b" ", "another digest"),
    ],
)
def test_tables_of_strangers_are_checked_before_they_are_used(
    name: str,
    change: Callable[[bytes], bytes],
    problem: str,
    data: DataSettings,
    tmp_path: Path,
) -> None:
    """Wrong ids and objects would read any memory."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    address = with_file(local, name, change((local.folder / name).read_bytes()))

    with pytest.raises(InputError, match=problem):
        fetch(changed(elsewhere(data, local), prepared=address), tmp_path)


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (f"http://169.254.169.254/{DIGEST}.json", "'http://' are not opened"),
        (f"file:///etc/{DIGEST}.json", "'file://' are not opened"),
        (f"simplecache::s3://b/{DIGEST}.json", "'simplecache::s3://' are not opened"),
        (f"s3://b/x::http://h/{DIGEST}.json", "not a bucket and a path"),
        (f"s3://b?versionId=x/{DIGEST}.json", "not a bucket and a path"),
        (f"s3://key:secret@b/{DIGEST}.json", "not a bucket and a path"),
        (f"s3://b/../c/{DIGEST}.json", "not a bucket and a path"),
        (f"s3:///{DIGEST}.json", "not a bucket and a path"),
        (f"S3://b/{DIGEST}.json", "'S3://' are not opened"),
        ("s3://bucket/wmt", "not the address of prepared data"),
        (f"{DIGEST}.json", "not the address of prepared data"),
        (f"s3://bucket/{DIGEST}0.json", "not the address of prepared data"),
    ],
)
def test_other_addresses_are_refused_when_a_run_is_read(
    address: str, problem: str, toy_run: Callable[..., Run]
) -> None:
    """A stranger's run cannot name another protocol, a server, or a file."""
    value = toy_run().model_dump(mode="json", by_alias=True, exclude_unset=True)

    with pytest.raises(SpecError, match=problem) as caught:
        run_of({"format": 1, **value}, "run.json", {"data.prepared": address})
    assert "/data/prepared" in str(caught.value)


@pytest.mark.parametrize("address", ["../outside", "/etc", "link"])
def test_a_folder_outside_of_the_root_is_refused(
    address: str, data: DataSettings, tmp_path: Path
) -> None:
    """Also through a link."""
    (tmp_path / "text" / "link").symlink_to(tmp_path)

    with pytest.raises(InputError, match="is outside the data root"):
        fetch(changed(data, prepared=f"{address}/{DIGEST}.json"), tmp_path)


@pytest.mark.parametrize("to", ["http://host/path", "s3://", "s3://b ucket", "memory://a/../b"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    to: str, data: DataSettings, tmp_path: Path
) -> None:
    """Nothing is prepared."""
    with pytest.raises(InputError, match=r"are not opened|not a bucket and a path"):
        prepare(data, SMALL, tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists()


def test_an_extra_that_is_missing_is_named(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)

    with pytest.raises(InputError, match="needs the package 'gcsfs'") as caught:
        prepare(data, SMALL, tmp_path / "out", to="gs://bucket/wmt")
    assert caught.value.help == "pip install 'weft[gs]'"


def test_work_for_processes_is_refused_where_there_is_none(
    data: DataSettings, tmp_path: Path
) -> None:
    """The option would have no effect."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")

    with pytest.raises(InputError, match="no work for processes"):
        prepare(elsewhere(data, local), SMALL, tmp_path / "unused", processes=2)


def test_the_cache_removes_what_was_used_least_recently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never what is in use: the fourth data needs the room of the first."""
    fetched: list[Path] = []
    for number in range(3):
        data = written(tmp_path / f"text{number}", filter={"max_length": 10 + number})
        local = prepare(data, SMALL, tmp_path / f"out{number}", to="memory://bucket")
        fetched.append(fetch(elsewhere(data, local), tmp_path).folder)
    size = sum(path.stat().st_size for path in fetched[0].rglob("*") if path.is_file())
    monkeypatch.setenv("WEFT_CACHE_LIMIT", str(3.5 * size / 1e9))
    for age, folder in zip((1, 3, 2), fetched, strict=True):  # the second is the newest
        os.utime(folder, (age, age))
    cache._IN_USE.pop(fetched[1]).release()
    cache._IN_USE.pop(fetched[2]).release()
    data = written(tmp_path / "text", filter={"max_length": 20})
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    last = fetch(elsewhere(data, local), tmp_path).folder

    assert [folder.is_dir() for folder in fetched] == [True, True, False]
    assert last.is_dir()


@pytest.mark.parametrize(
    ("limit", "problem"),
    [("0.0000001", r"but the cache may have 0\.0 MB"), ("many", "'many', not a number of GB")],
)
def test_a_cache_without_room_is_an_error_with_a_way_out(
    limit: str,
    problem: str,
    data: DataSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    empty_cache: Path,
) -> None:
    """Nothing is fetched."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    monkeypatch.setenv("WEFT_CACHE_LIMIT", limit)

    with pytest.raises(InputError, match=problem) as caught:
        fetch(elsewhere(data, local), tmp_path)
    assert "WEFT_CACHE_LIMIT" in str(caught.value.help)
    assert not any(empty_cache.rglob("*.bin"))


def test_a_disk_without_room_is_an_error_before_the_data_is_fetched(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the folder."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    usage = shutil.disk_usage(tmp_path)._replace(free=cache.RESERVE + 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    with pytest.raises(InputError, match=r"the disk of the cache has room for 0\.0 MB"):
        fetch(elsewhere(data, local), tmp_path)


def test_prepared_data_has_no_training_text(data: DataSettings, tmp_path: Path) -> None:
    """Whoever asks for it learns where it is."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    far = elsewhere(data, local)

    with pytest.raises(InputError, match="prepared data has no training text"):
        list(records_of(far, "train", local.columns))


def test_test_sets_alone_are_fetched_for_an_evaluation(
    data: DataSettings, tmp_path: Path, empty_cache: Path
) -> None:
    """Not the tables, which may be large."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    records = list(records_of(elsewhere(data, local), "small", local.columns))

    assert [record.values for record in records] == [{"source": "six", "target": "six"}]
    assert not any(empty_cache.rglob("*.bin"))


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Start a server of S3 with a bucket; return the bucket's address."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        system = pytest.importorskip("fsspec").filesystem("s3")
        system.mkdir("corpora")
        yield "s3://corpora/wmt"
        system.clear_instance_cache()
    server.stop()


@pytest.fixture(scope="module")
def google_bucket() -> Iterator[str]:
    """Start a server of Google Cloud Storage with a bucket; return the bucket's address."""
    gcsfs = pytest.importorskip("gcsfs")
    emulator = pytest.importorskip("gcp_storage_emulator.server")
    server = emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket="corpora")
    server.start()
    host, port = server._api._httpd.server_address
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}:{port}")
        yield "gs://corpora/wmt"
        gcsfs.GCSFileSystem.clear_instance_cache()
    server.stop()


def weights_of(run: Run, out: Path) -> bytes:
    """Return the averaged weights of a training."""
    result = api.train(run, out=out)
    assert result.averaged is not None
    return (result.averaged / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def trained(
    toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, Path, bytes]:
    """Return a run of two updates with a logged prediction, its folder, and its weights."""
    evaluate = {"every": 2, "best": "nll", "metrics": ["perplexity"], "samples": 1}
    run = toy_run_module(updates=2, evaluate=evaluate)
    out = tmp_path_factory.mktemp("local")
    return run, out, weights_of(run, out)


@pytest.mark.integration
@pytest.mark.parametrize("place", ["memory", "folder", "bucket", "google_bucket"])
def test_prepared_data_from_elsewhere_trains_to_the_same_bits(
    place: str, trained: tuple[Run, Path, bytes], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """From each kind of place, without the text; and the checkpoint has its test set."""
    run, out, weights = trained
    places = {"memory": "memory://runs", "folder": str(tmp_path / "shared")}
    to = places.get(place) or request.getfixturevalue("bucket")
    local = prepare(run.data, run.tokenizers, out / "prepared", to=to)
    address = str(local.address).replace(f"{tmp_path}/", "")
    data = changed(run.data, root=str(tmp_path), prepared=address)
    far = run.model_copy(update={"data": data})

    assert weights_of(far, tmp_path / "far") == weights
    assert len(open_model(tmp_path / "far" / "averaged").answering.rows("toy")) == 10


@pytest.mark.integration
@pytest.mark.parametrize("place", ["bucket", "google_bucket"])
def test_a_bucket_that_does_not_exist_is_named(
    place: str, data: DataSettings, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Before anything is prepared."""
    bucket = request.getfixturevalue(place)
    with pytest.raises(InputError, match="there is no such bucket"):
        prepare(data, SMALL, tmp_path / "out", to=bucket.replace("corpora", "nothing"))
    with pytest.raises(InputError, match=f"there is no '{DIGEST}.json'"):
        fetch(changed(data, prepared=f"{bucket}/{DIGEST}.json"), tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.integration
def test_a_server_that_does_not_answer_is_an_error(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the network and the account as what to check."""
    s3fs = pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    s3fs.S3FileSystem.clear_instance_cache()

    with pytest.raises(InputError, match="cannot write 'objects/") as caught:
        prepare(data, SMALL, tmp_path / "out", to="s3://corpora/wmt")
    assert "check the network" in str(caught.value.help)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.integration
def test_the_command_prints_the_address_that_a_run_needs(
    toy_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And `weft prepare` with this address fetches it."""
    run = toy_run()
    value = run.model_dump(mode="json", by_alias=True, exclude_unset=True)
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, **value}))
    command = ["prepare", str(tmp_path / "run.json"), "--out", str(tmp_path / "out")]

    assert main([*command, "--to", "memory://bucket"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["prepared"].startswith("memory://bucket/")
    assert main([*command, "--set", f"data.prepared={report['prepared']}"]) == 0
    assert json.loads(capsys.readouterr().out)["train"] == report["train"]


def test_a_manifest_has_no_time_and_no_path(data: DataSettings, tmp_path: Path) -> None:
    """Each key is named here, so that a new one is thought about."""
    local = prepare(data, SMALL, tmp_path / "out", to="memory://bucket")
    _, digest = split_address(str(local.address))
    content = MemoryFileSystem.store[f"/bucket/{digest}.json"].getvalue()

    assert set(json.loads(content)) == {"format", "settings", "report", "digest", "files"}
    assert str(tmp_path).encode() not in content
    assert manifest.parsed(content, "", "").content() == content
