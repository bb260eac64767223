"""Finished runs of a study are carried to another folder, and are not trained there again."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft.extensions.study.jobs import jobs_of, open_plan
from weft.extensions.study.report.record import study_record
from weft.extensions.study.results import arrays_in
from weft.extensions.study.study import Study, edited
from weft.extensions.study.transfer import pack, packed_plan, unpack
from weft.extensions.study.worker import run_job
from weft.runtime.cli.main import main
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


def test_the_report_needs_no_data(done: Path, packed: Path, tmp_path: Path) -> None:
    """The files are enough, and a study whose file is another has its own rows."""
    path = tmp_path / "study.json"
    source = json.loads(write_study(done, rows=ONE_ROW).read_text())
    source["run"]["data"]["root"] = "nowhere"
    path.write_text(json.dumps(source))
    carried = Study(path, out=tmp_path / "out")

    added, known = carried.unpack([packed])

    assert (len(added), known) == (4, [])
    found, wanted = carried.report(), study_record(done / "out")
    assert found.record["tables"] == wanted["tables"]
    assert (found.record["source"], found.record["folder"]) == (str(path), str(tmp_path / "out"))
    assert not edited(carried)
    edited_study = tmp_path / "edited.json"
    edited_study.write_text(json.dumps({**source, "seeds": [1]}))
    other = Study(edited_study, out=tmp_path / "other")
    other.unpack([packed])
    with pytest.raises(InputError, match="there is no study in this folder"):
        other.report()


def test_runs_that_are_not_there_wait(done: Path, packed: Path, tmp_path: Path) -> None:
    """A part of the files has a part of the report."""
    first = sorted(packed.glob("*.zip"))[0]
    carried = Study(write_study(done, rows=ONE_ROW), out=tmp_path)

    carried.unpack([first, packed / "plan.json"])

    states = [job.state for job in carried.status()]
    assert sorted(states) == ["done", "queued", "queued", "queued"]
    assert len(carried.results()) == len(study_record(done / "out")["tables"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rows": []}, "rows: List should have at least 1 item"),
        ({"document": 1}, "document: Input should be"),
        ({"overrides": [1]}, "overrides.0: Input should be a valid string"),
    ],
)
def test_plans_of_other_contents_are_refused(
    packed: Path, tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    """Before anything is written."""
    plan = json.loads((packed / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps({**plan, **change}))

    with pytest.raises(InputError, match="not the plan of a study") as caught:
        packed_plan([tmp_path])

    assert problem in str(caught.value)


def test_keys_and_seeds_of_a_plan_are_checked(packed: Path, tmp_path: Path) -> None:
    """A key is the name of a folder, and every row has the same seeds."""
    plan = json.loads((packed / "plan.json").read_text())
    jobs = plan["rows"][0]["jobs"]
    for wrong, problem in (({**jobs, "1": "../../x"}, "match pattern"), ({"1": "0" * 16}, "seeds")):
        plan["rows"][0]["jobs"] = wrong
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        with pytest.raises(InputError, match="not the plan of a study") as caught:
            packed_plan([tmp_path])
        assert problem in str(caught.value)
    with pytest.raises(InputError, match="a second plan"):
        packed_plan([tmp_path, packed])


def test_packing_again_changes_nothing(done: Path, packed: Path) -> None:
    """The file of a run depends on the run alone, so that repositories do not grow."""
    before = {path.name: path.stat().st_mtime_ns for path in packed.iterdir()}
    pack(done / "out", packed)
    assert {path.name: path.stat().st_mtime_ns for path in packed.iterdir()} == before


def test_files_name_no_folder_of_this_machine(done: Path, packed: Path) -> None:
    """The folder of the data is in the run and in the task of a job, but not in its file."""
    assert str(done) in next((done / "out/jobs").glob("*/task.json")).read_text()
    assert str(done) not in (packed / "plan.json").read_text()
    for path in packed.glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            assert all(str(done).encode() not in archive.read(name) for name in archive.namelist())
            assert json.loads(archive.read("run.json"))["data"]["root"] == "data"


def test_what_a_study_has_begun_is_kept(packed: Path, copy: Path) -> None:
    """Its own runs have checkpoints, which a carried run lacks."""
    files = sorted(packed.glob("*.zip"))
    assert unpack(files, copy) == ([], [path.stem for path in files])
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
    good = sorted(packed.glob("*.zip"))[0]
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

    assert caught.value.location == str(tmp_path / "nowhere")
    assert not (tmp_path / "study").exists()


def test_large_and_damaged_files_are_refused(packed: Path, tmp_path: Path) -> None:
    """The size of an entry is known before it is read."""
    large, damaged = tmp_path / f"{'1' * 16}.zip", tmp_path / f"{'2' * 16}.zip"
    with zipfile.ZipFile(large, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run.json", b" " * (2**26 + 1))
    damaged.write_bytes(sorted(packed.glob("*.zip"))[0].read_bytes()[:-100])

    many, twice, flipped = (tmp_path / f"{number * 16}.zip" for number in "345")
    with zipfile.ZipFile(many, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"measured/{number:016}/toy.sums.npz", b" " * 2**25)
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("run.json", b"{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("run.json", b"{}")
    content = bytearray(sorted(packed.glob("*.zip"))[0].read_bytes())
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
    with pytest.raises(ValueError, match="8,589,934,592 values"):
        arrays_in(sums_file(array, shape=(2**32, 2)))
    with pytest.raises(ValueError, match="an array of object is not read"):
        arrays_in(sums_file(np.array([["a"]], object)))
    with pytest.raises(ValueError, match="not one of sums"):
        arrays_in(sums_file(np.array([[1]])))
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
