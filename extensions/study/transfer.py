"""Carry finished runs of a study to another machine: one small file for each, without weights.

The file `plan.json` has the rows of the study and the keys of their runs; with it, the report needs
no data.  The file of a run is `KEY.zip`, with what the report of a study reads:

run.json, trained.json                 the run, and when its training ended
task.json, search.json                 what was measured: as of the study, as of its tuning, or both
objective.json                         its objective, if it is not a shipped one
train/metrics.jsonl                    validations, and a part of the training losses
measured/DIGEST/                       scores, and sums of each example by test set

A run is found again by its key, which follows from everything that determines the weights.  Folders
of data, checkpoints and trackers are left out: the next `weft study run` writes those of its own.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...plugin import InputError, locked, write_beside
from ...runtime.data.array_files import DAMAGED
from ...runtime.system.folders import new_folder
from ...runtime.system.strangers import has_file, open_in, read_in
from ...specs.files import way_out
from ...specs.regular_files import DamagedError
from .jobs import (
    OBJECTIVE,
    PLAN,
    RESULT,
    SEARCH_TASK,
    TASK,
    TRAINED,
    Job,
    Trained,
    check_form,
    jobs_of,
    json_text,
    open_plan,
    read_json,
    write_json,
)
from .planning.stored import KEY, StoredPlan, StoredTask
from .results import LARGEST, JobResult, arrays_in

LOSSES = 200
"""Training losses that are kept, evenly spaced."""
ENTRIES = 256
"""Most entries of a file, each of another name."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_HISTORY = "train/metrics.jsonl"
_MEASURED = re.compile(rf"measured/{KEY}/(?:{re.escape(RESULT)}|[\w.-]+\.sums\.npz)")
_TASKS = (TASK, SEARCH_TASK)
_WHOLE = ("run.json", *_TASKS, TRAINED, OBJECTIVE)
_COMPRESSION = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ROOT = "data"
"""Folder of the data in a packed file."""
_PLACES = ("folder", "source")
"""Entries of a plan that are those of a machine."""
_HELP = "give the files, or the folder, that weft study pack has written"


def pack(study: Path, out: Path) -> list[Path]:
    """Write the plan of a study and a file for each finished run; the same files stay as they are.

    Args:
        study: folder of the study.
        out: folder of the files.

    Returns:
        The files of the runs.

    Raises:
        InputError: the study was not run, or a file cannot be read or written.
    """
    packed = []
    plan = open_plan(study)
    done: dict[str, list[Job]] = {}  # a chosen trial is also a run of its row
    for job in jobs_of(plan, study):
        if job.state() == "done":
            done.setdefault(job.key, []).append(job)
    for key, jobs in done.items():
        path, content = out / f"{key}.zip", _packed(jobs)
        if not (path.is_file() and path.read_bytes() == content):
            write_beside(path, content, "file of a run")
        packed.append(path)
    if packed:
        write_json(out / PLAN, _carried(plan))
    return packed


def _carried(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a study without folders of this machine."""
    carried = {key: value for key, value in plan.items() if key not in _PLACES}
    carried["document"] = without_roots(plan["document"])
    carried["overrides"] = [
        override for override in plan["overrides"] if not _is_root(override.partition("=")[0])
    ]
    return carried


def without_roots(value: Any) -> Any:
    """Return a JSON value without the folders of data in it.

    >>> without_roots({"root": "a", "set": {"data.root": "b", "threads": 1}})
    {'set': {'threads': 1}}
    """
    if isinstance(value, list):
        return [without_roots(item) for item in value]
    if isinstance(value, dict):
        return {key: without_roots(inner) for key, inner in value.items() if not _is_root(key)}
    return value


def _is_root(dotted: str) -> bool:
    return dotted.rpartition(".")[2] == "root"


def _packed(jobs: Sequence[Job]) -> bytes:
    """Return the file of a finished run; the same run always gives the same bytes.

    Args:
        jobs: its jobs, which differ in what they measure.
    """
    job, tasks = jobs[0], {job.kind for job in jobs}
    try:
        measured = [job.measured / RESULT for job in jobs]
        measured += [path for job in jobs for path in sorted(job.measured.glob("*.sums.npz"))]
        files = [name for name in _WHOLE if name not in _TASKS and has_file(job.folder, name)]
        files += sorted(tasks)
        files += [path.relative_to(job.folder).as_posix() for path in measured]
        contents = {name: read_in(job.folder, name) for name in files}
        contents |= {name: _without_folders(contents[name]) for name in ("run.json", *tasks)}
        contents[_HISTORY] = _thinned(read_in(job.folder, _HISTORY))
    except InputError as error:
        problem = f"cannot read a file of run {job.key}: {error.problem}"
        raise InputError(problem, location=error.location) from error
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _without_folders(content: bytes) -> bytes:
    """Return the JSON of a run or a task without folders of this machine.

    They are those of its data, of the checkpoints that it reads, and of its trackers.
    """
    value = json.loads(content)
    value["data"]["root"] = ROOT
    if value.get("trackers"):
        value["trackers"] = []
    start = value.get("start")
    if isinstance(start, dict):
        start["checkpoint"] = Path(start["checkpoint"]).name
    elif start:
        value["start"] = Path(start).name
    for param in value.get("params", {}).values():
        if isinstance(param, dict) and "checkpoint" in param:
            param["checkpoint"] = Path(param["checkpoint"]).name
    return json_text(value).encode()


def _thinned(history: bytes) -> bytes:
    """Return the history of a training with at most `LOSSES` training losses."""
    lines = history.splitlines(keepends=True)
    losses = [at for at, line in enumerate(lines) if json.loads(line).get("type") == "train"]
    selected = set(losses)
    if len(losses) > LOSSES:
        selected = {
            losses[at] for at in np.linspace(0, len(losses) - 1, LOSSES).round().astype(int)
        }
    others = set(range(len(lines))) - set(losses)
    return b"".join(line for at, line in enumerate(lines) if at in selected | others)


def unpack(sources: Sequence[Path], study: Path) -> tuple[list[str], list[str]]:
    """Add finished runs to the folder of a study, whose next `run` does not train them again.

    Nothing is written if a file is wrong.

    Args:
        sources: files that `pack` has written, or folders of them.
        study: folder of the study, which is created.

    Returns:
        Keys of the runs that were added, and of those that the study has begun already.

    Raises:
        InputError: a file is not that of a run, or another process uses the folder.
    """
    paths: list[Path] = []
    for source in sources:
        if not source.exists():
            raise InputError("the file does not exist", location=str(source), help=_HELP)
        if source.name != PLAN:
            paths += sorted(source.glob("*.zip")) if source.is_dir() else [source]
    if not paths:
        location = ", ".join(map(str, sources))
        raise InputError("no results of runs found", location=location, help=_HELP)
    for path in paths:
        _contents(path)  # all of them before anything is written; one at a time is in memory
    added: list[str] = []
    existing: list[str] = []
    with locked(study):
        for key, path in {path.stem: path for path in paths}.items():
            job = Job(study / "jobs" / key, "", 0)
            begun = (job.folder / TRAINED).is_file() or (job.folder / "train").is_dir()
            begun = begun or job.locked()  # another process prepares its data
            (existing if begun else added).append(key)
            if not begun:
                _place(job.folder, _contents(path))
    return added, existing


def packed_plan(sources: Sequence[Path]) -> dict[str, Any] | None:
    """Return the plan among the files of `pack`, without the places of a machine; None if absent.

    Args:
        sources: as of `unpack`.

    Raises:
        InputError: it is damaged, or there are several.
    """
    candidates = [source / PLAN if source.is_dir() else source for source in sources]
    paths = [
        candidate for candidate in candidates if candidate.name == PLAN and candidate.is_file()
    ]
    if not paths:
        return None
    if len(paths) > 1:
        raise InputError("this is a second plan of a study", location=str(paths[1]), help=_HELP)
    [path] = paths
    try:
        return dict(read_json(path, StoredPlan, LARGEST))
    except InputError as error:
        problem = f"not the plan of a study: {error.problem}"
        raise InputError(problem, location=str(path), help=_HELP) from error


def _contents(path: Path) -> dict[str, bytes]:
    """Return the checked contents of the file of a run, by name.

    Raises:
        InputError: the file is damaged, or has other contents.
    """

    def wrong(problem: str) -> InputError:
        how = "get it again, or write it again with weft study pack"
        return InputError(f"not the file of a run: {problem}", location=str(path), help=how)

    if not re.fullmatch(KEY, path.stem):
        raise wrong("its name is not the key of a run")
    try:
        with open_in(path.parent, path.name) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            total = sum(entry.file_size for entry in entries)
            if len(entries) > ENTRIES or total > LARGEST:
                raise wrong(f"it has {len(entries):,} entries of {total:,} bytes")
            for entry in entries:
                expected = entry.filename in (*_WHOLE, _HISTORY) or _MEASURED.fullmatch(
                    entry.filename
                )
                if not expected or entry.compress_type not in _COMPRESSION:
                    raise wrong(f"it contains '{entry.filename}'")
            contents = {entry.filename: archive.read(entry) for entry in entries}
        if len(contents) < len(entries):
            raise wrong("it has two entries of the same name")
        tasks = {*_TASKS} & contents.keys() or {TASK}
        for name in {"run.json", TRAINED, *tasks} - contents.keys():
            raise wrong(f"it has no {name}")
        if not any(name.endswith(f"/{RESULT}") for name in contents):
            raise wrong("it has no scores")
        for name, content in contents.items():
            _check(name, content)
    except DamagedError as error:
        raise wrong(error.problem) from error
    except (OSError, ValueError, *DAMAGED) as error:
        raise wrong(str(error)) from error
    return contents


def _check(name: str, content: bytes) -> None:
    """Check the content of an entry.

    Raises:
        ValueError: it is not what its name says.
    """
    if name.endswith(".npz"):
        arrays_in(content)
        return
    kinds = {TRAINED: Trained, TASK: StoredTask, SEARCH_TASK: StoredTask}
    kind = JobResult if name.endswith(f"/{RESULT}") else kinds.get(name, dict[str, Any])
    try:
        for text in content.splitlines() if name == _HISTORY else [content]:
            check_form(kind, text)
    except ValueError as error:
        raise ValueError(f"'{name}' {error}") from error


def _place(folder: Path, contents: dict[str, bytes]) -> None:
    """Write the folder of a run, completely or not at all.

    Raises:
        InputError: it cannot be written.
    """
    try:
        with new_folder(folder) as fresh:  # its task may be there, but nothing has run
            for name, content in contents.items():
                target = fresh / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
    except OSError as error:
        problem = f"cannot write the run: {error.strerror}"
        help_ = way_out(error, "choose another folder")
        raise InputError(problem, location=str(folder), help=help_) from error
