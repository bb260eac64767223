"""Folders, locks and files that arrive."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft.runtime.system.arriving import Arriving, take
from weft.runtime.system.folders import new_folder
from weft.runtime.system.lock import locked
from weft.specs.findings import InputError


def test_all_files_are_flushed_before_the_folder_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power after the renaming leaves a named folder with empty files."""
    out, flushed = tmp_path / "out", set[str]()
    flush = os.fsync

    def note(descriptor: int) -> None:
        flushed.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        assert not out.exists() or flushed >= {"a", "b", "inner"}
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with new_folder(out) as folder:
        (folder / "inner").mkdir()
        (folder / "a").touch()
        (folder / "inner" / "b").touch()
    assert sorted(path.name for path in out.iterdir()) == ["a", "inner"]
    assert flushed == {"a", "b", "inner", ".out.partial", tmp_path.name}


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    """A folder begins empty, and no hidden one stays."""
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / "half").touch()

    with new_folder(tmp_path / "out") as folder:
        assert list(folder.iterdir()) == []

    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", [".lock", ".owner.json", "metrics.jsonl", "metrics.partial"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_in_the_folder_of_a_run_is_refused(
    name: str, dangling: bool, tmp_path: Path
) -> None:
    """A training of a stranger's folder would overwrite the file to which it leads."""
    (tmp_path / "run").mkdir()
    target = tmp_path / "profile"
    if not dangling:
        target.write_text("mine")
    (tmp_path / "run" / name).symlink_to(target)

    with pytest.raises(InputError, match="a file elsewhere would be overwritten"):
        locked(tmp_path / "run").__enter__()

    assert target.exists() != dangling
    assert dangling or target.read_text() == "mine"


def test_a_linked_folder_is_allowed(tmp_path: Path) -> None:
    """Jobs of a study share prepared data by such links."""
    (tmp_path / "run").mkdir()
    (tmp_path / "prepared").mkdir()
    (tmp_path / "run/prepared").symlink_to("../prepared", target_is_directory=True)

    with locked(tmp_path / "run"):
        assert (tmp_path / "run/.owner.json").is_file()


PAUSE = 0.001


class Pipe:
    """Lines that another program writes when the test says so."""

    def __init__(self, *lines: str) -> None:
        """Have some lines at first; the end comes when the test says so."""
        self.lines, self.more = list(lines), threading.Semaphore(0)

    def __iter__(self) -> Iterator[str]:
        """Yield the lines; wait where there is none, and end if there is none afterwards."""
        while True:
            if not self.lines:
                assert self.more.acquire(timeout=60)
            if not self.lines:
                return
            yield self.lines.pop(0)

    def write(self, *lines: str) -> None:
        """Add lines, or end the pipe without any."""
        self.lines += lines
        self.more.release()


def taken(arriving: Arriving[str], count: int) -> list[str]:
    """Take items until there are so many: the system decides how they are divided."""
    found: list[str] = []
    while len(found) < count:
        found += arriving.take(1000)
    return found


def test_items_that_arrived_do_not_wait_for_others() -> None:
    """They are taken in order while the pipe is open; its end is no item."""
    pipe = Pipe("a", "b")
    arriving = Arriving(pipe, 1000, pause=PAUSE)

    assert taken(arriving, 2) == ["a", "b"]
    pipe.write("c", "d", "e")
    assert taken(arriving, 3) == ["c", "d", "e"]
    pipe.write()
    assert arriving.take(1000) == []
    assert list(arriving) == []


def test_as_many_as_wanted_are_taken_if_they_have_arrived() -> None:
    """Batches stay full: all items have been read when the first is taken."""
    arriving = Arriving(map(str, range(10)), 11, pause=PAUSE)
    arriving._thread.join()

    assert [len(arriving.take(4)) for _ in range(4)] == [4, 4, 2, 0]


def test_no_more_is_read_ahead_than_wanted() -> None:
    """A long input is not read into memory: three in the queue, and one that waits for a place."""
    read = []
    full = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            if number == 3:
                full.set()
            yield number

    arriving = Arriving(items(), 3, pause=PAUSE)
    assert full.wait(timeout=60)

    assert read == [0, 1, 2, 3]
    assert list(arriving) == list(range(100))


def test_an_error_comes_after_the_items_before_it() -> None:
    """The other thread's error is raised where the item would have been."""

    def items() -> Iterator[str]:
        yield "a"
        raise ValueError("no line")

    arriving = Arriving(items(), 10, pause=PAUSE)

    assert arriving.take(10) == ["a"]
    with pytest.raises(ValueError, match="no line"):
        arriving.take(10)


def test_the_prompt_is_shown_before_each_wait() -> None:
    """A person types a line after each prompt, and ends the input after the third."""
    pipe, prompts = Pipe(), list[str]()
    typed = iter([["a"], ["b"], []])

    def prompt() -> None:
        prompts.append("> ")
        pipe.write(*next(typed))

    arriving = Arriving(pipe, 10, waiting=prompt, ended=lambda: prompts.append("end"), pause=PAUSE)

    assert [arriving.take(10) for _ in range(4)] == [["a"], ["b"], [], []]
    assert prompts == ["> ", "> ", "> ", "end"]


def test_other_iterators_give_as_many_as_wanted() -> None:
    """A file can always be read, so its batches do not depend on time."""
    items = iter(range(5))

    assert [take(items, 3), take(items, 3), take(items, 3)] == [[0, 1, 2], [3, 4], []]
