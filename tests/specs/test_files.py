"""Writing files: complete or not at all, and never in place of a device, a pipe or a link."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weft.specs.files import write_beside


def test_a_link_is_followed(tmp_path: Path) -> None:
    """The file that it points to is replaced; the link stays."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)

    write_beside(link, b"new", "file")

    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """As by `-o >(gzip > out.gz)` of a shell; it is still a pipe afterwards."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()

    write_beside(pipe, b"content", "file")
    reader.join()

    assert read == [b"content"]
    assert pipe.is_fifo()


def test_a_pipe_that_is_named_by_its_descriptor_is_written_to() -> None:
    """`/dev/fd/N` is a link to a name that is no path, which must not be followed."""
    read, write = os.pipe()
    try:
        write_beside(Path(f"/dev/fd/{write}"), b"content", "file")
        assert os.read(read, 7) == b"content"
    finally:
        os.close(read)
        os.close(write)


def test_a_file_is_replaced_and_its_folder_is_made(tmp_path: Path) -> None:
    """No temporary file is left."""
    out = tmp_path / "new" / "file"
    for content in (b"one", b"two"):
        write_beside(out, content, "file")

    assert out.read_bytes() == b"two"
    assert [path.name for path in out.parent.iterdir()] == ["file"]


def test_threads_may_write_one_file_at_once(tmp_path: Path) -> None:
    """Each has a temporary file of its own; the content is that of one of them."""
    contents = [bytes([number]) * 10_000 for number in range(8)]
    with ThreadPoolExecutor(len(contents)) as pool:
        for _ in range(20):
            list(
                pool.map(lambda content: write_beside(tmp_path / "file", content, "file"), contents)
            )

    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
