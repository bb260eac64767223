"""Finished runs of a study are carried to another folder, and are not trained there again."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from weft.runtime.cli.main import main
from weft.runtime.study.carrying import pack, unpack
from weft.runtime.study.report.record import study_record
from weft.runtime.study.running.jobs import jobs_of, open_plan
from weft.runtime.study.running.measuring import arrays_in
from weft.runtime.study.running.worker import run_job
from weft.specs.findings import InputError

from .conftest import ONE_ROW, write_study, written

pytestmark = pytest.mark.integration
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def packed(done: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the finished runs."""
    folder = tmp_path_factory.mktemp("packed")
    assert len(pack(done / "out", folder)) == 4
    return folder


def test_a_new_folder_has_the_same_report(done: Path, packed: Path, tmp_path: Path) -> None:
    """Every score and comparison is the same, and nothing remains to be trained."""
    added, known = unpack([packed], tmp_path)
    jobs = written(write_study(done, rows=ONE_ROW), tmp_path)

    assert (len(added), known) == (4, [])
    assert {job.state() for job in jobs} == {"done"}
    found, wanted = study_record(tmp_path), study_record(done / "out")
    assert found["rows"] == wanted["rows"]
    assert found["tables"] == wanted["tables"]


def test_packing_again_changes_nothing(done: Path, packed: Path) -> None:
    """The file of a run depends on the run alone, so that repositories do not grow."""
    before = {path.name: path.stat().st_mtime_ns for path in packed.iterdir()}
    pack(done / "out", packed)
    assert {path.name: path.stat().st_mtime_ns for path in packed.iterdir()} == before


def test_files_name_no_folder_of_this_machine(done: Path, packed: Path) -> None:
    """The folder of the data is in the run and in the task of a job, but not in its file."""
    assert str(done) in next((done / "out/jobs").glob("*/task.json")).read_text()
    for path in packed.iterdir():
        with zipfile.ZipFile(path) as archive:
            assert all(str(done).encode() not in archive.read(name) for name in archive.namelist())
            assert json.loads(archive.read("run.json"))["data"]["root"] == "data"


def test_what_a_study_has_begun_is_kept(packed: Path, copy: Path) -> None:
    """Its own runs have checkpoints, which a carried run lacks."""
    assert unpack(sorted(packed.iterdir()), copy) == ([], sorted(p.stem for p in packed.iterdir()))
    [*jobs] = jobs_of(open_plan(copy), copy)
    assert all((job.folder / "train/averaged").is_dir() for job in jobs)


def test_a_carried_run_trains_where_its_weights_are_needed(
    done: Path, packed: Path, tmp_path: Path
) -> None:
    """Another metric needs the model, which was not carried."""
    unpack([packed], tmp_path)
    path = write_study(done, rows=ONE_ROW, measure={"metrics": ["ter"]})
    job = written(path, tmp_path)[0]

    assert run_job(job.folder) == "done"

    scores = json.loads((job.measured / "result.json").read_text())["splits"]["toy"]["scores"]
    assert scores.keys() == {"ter"}


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("../../escaped.json", b"{}", "it contains '../../escaped.json'"),
        ("train/checkpoints/000004/weights.safetensors", b"", "it contains 'train/checkpoints"),
        ("run.json", b"{", "'run.json' : Invalid JSON"),
        ("run.json", b"[" * 100_000, "'run.json' : Invalid JSON"),
        ("trained.json", b"{}", "'trained.json' update: Field required"),
        (
            "task.json",
            b'{"measured": "../..", "splits": [], "metrics": []}',
            "'task.json' measured",
        ),
        (f"measured/{'0' * 16}/result.json", b"{}", "training: Field required"),
        (f"measured/{'0' * 16}/toy.sums.npz", b"PK", "not a zip file"),
    ],
)
def test_files_with_other_contents_are_refused(
    packed: Path, tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    """Also a good file beside a wrong one is not added."""
    good = sorted(packed.iterdir())[0]
    wrong = tmp_path / f"{'0' * 16}.zip"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(wrong, "w") as target:
        for entry in source.namelist():
            if entry != name:
                target.writestr(entry, source.read(entry))
        target.writestr(name, content)

    with pytest.raises(InputError, match="not the file of a run") as caught:
        unpack([good, wrong], tmp_path / "study")

    assert problem in str(caught.value)
    assert not (tmp_path / "study").exists()


def test_a_path_that_does_not_exist_is_named(packed: Path, tmp_path: Path) -> None:
    """Not as a file of other contents."""
    with pytest.raises(InputError, match="the file does not exist") as caught:
        unpack([packed, tmp_path / "nowhere"], tmp_path / "study")

    assert caught.value.place == str(tmp_path / "nowhere")
    assert not (tmp_path / "study").exists()


def test_large_and_damaged_files_are_refused(packed: Path, tmp_path: Path) -> None:
    """The size of an entry is known before it is read."""
    large, damaged = tmp_path / f"{'1' * 16}.zip", tmp_path / f"{'2' * 16}.zip"
    with zipfile.ZipFile(large, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run.json", b" " * (2**26 + 1))
    damaged.write_bytes(sorted(packed.iterdir())[0].read_bytes()[:-100])

    many, twice, flipped = (tmp_path / f"{number * 16}.zip" for number in "345")
    with zipfile.ZipFile(many, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"measured/{number:016}/toy.sums.npz", b" " * 2**25)
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("run.json", b"{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("run.json", b"{}")
    content = bytearray(sorted(packed.iterdir())[0].read_bytes())
    content[100:140] = bytes(byte ^ 0xFF for byte in content[100:140])
    flipped.write_bytes(content)
    wrong = [(large, "67,108,865 bytes"), (damaged, "not a zip file"), (flipped, "")]
    wrong += [(many, "3 entries of 100,663,296 bytes"), (twice, "two entries of the same name")]

    for path, problem in wrong:
        with pytest.raises(InputError) as caught:
            unpack([path], tmp_path / "study")
        assert problem in str(caught.value)


def sums_file(*arrays: np.ndarray, shape: tuple[int, ...] | None = None) -> bytes:
    """Return an `.npz` file, of which each header may state another shape."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for number, array in enumerate(arrays):
            one = io.BytesIO()
            header = np.lib.format.header_data_from_array_1_0(array)
            np.lib.format.write_array_header_1_0(one, {**header, "shape": shape or array.shape})
            archive.writestr(f"{number}.npy", one.getvalue() + array.tobytes("A"))
    return whole.getvalue()


def test_arrays_are_read_as_they_are_stated_if_the_file_has_them() -> None:
    """Also in the order of columns; a header that asks for more memory than there is, is wrong."""
    array = np.arange(6.0).reshape(2, 3)

    assert np.array_equal(arrays_in(sums_file(array))["0"], array)
    assert np.array_equal(arrays_in(sums_file(np.asfortranarray(array)))["0"], array)
    with pytest.raises(ValueError, match="8,589,934,592 numbers"):
        arrays_in(sums_file(array, shape=(2**32, 2)))
    with pytest.raises(ValueError, match="not one of sums"):
        arrays_in(sums_file(np.array([["a"]], object)))
    with pytest.raises(ValueError, match="more than"):
        arrays_in(sums_file(np.zeros((2**22, 2)), np.zeros((1, 1))))


def test_the_commands(done: Path, tmp_path: Path, capsys: Capture) -> None:
    """`pack` and `unpack` take the study and say how many runs there were."""
    path, files = str(write_study(done, rows=ONE_ROW)), str(tmp_path / "files")

    assert main(["study", "pack", path, "--out", str(done / "out"), "--to", files]) == 0
    assert "4 finished runs" in capsys.readouterr().err
    assert main(["study", "unpack", path, files, "-o", str(tmp_path / "out")]) == 0
    assert "4 added, 0 known already" in capsys.readouterr().err
    assert main(["study", "unpack", path, str(tmp_path), "-o", str(tmp_path / "out")]) == 1
    assert "no results of runs found" in capsys.readouterr().err
