"""Corpora of shards: what is written is read back, and damaged files are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.data.shards import arrays
from weft.runtime.data.shards.corpus import Corpus, CorpusWriter
from weft.specs.findings import InputError

Pairs = list[tuple[list[int], list[int]]]
CORPUS_PAIRS: Pairs = [([5, 6, 7], [8]), ([], [9, 10]), ([65535], [])]


def written(folder: Path, pairs: Pairs, vocab_size: int = 1 << 16) -> Corpus:
    """Write pairs and open the corpus."""
    with CorpusWriter(folder, vocab_size=vocab_size) as writer:
        for source, target in pairs:
            writer.add(source, target)
    return Corpus.open(folder)


def corpus_content(corpus: Corpus) -> Pairs:
    """Return all pairs as lists."""
    pairs = [corpus.pair(row) for row in range(len(corpus))]
    return [(source.tolist(), target.tolist()) for source, target in pairs]


def test_pairs_come_back_in_order(tmp_path: Path) -> None:
    """Including empty sides; lengths exclude the end token, which is not stored."""
    corpus = written(tmp_path / "c", CORPUS_PAIRS)

    assert corpus_content(corpus) == CORPUS_PAIRS
    assert corpus.arrays["source"].lengths()[:].tolist() == [3, 0, 1]
    assert corpus.arrays["target"].lengths()[:].tolist() == [1, 2, 0]


ids = st.lists(st.integers(0, (1 << 32) - 1), max_size=6)


@pytest.mark.integration
@given(st.lists(st.tuples(ids, ids), max_size=8))
def test_written_values_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: Pairs
) -> None:
    """Any ids round-trip, also when the buffer is flushed often."""
    folder = tmp_path_factory.mktemp("corpus") / "c"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "FLUSH", 4)

        corpus = written(folder, pairs, vocab_size=1 << 32)

    assert corpus_content(corpus) == pairs
    assert len(corpus) == len(pairs)


def test_small_vocabularies_take_two_bytes_an_id(tmp_path: Path) -> None:
    """65,536 ids fit into 16 bits, 65,537 do not."""
    written(tmp_path / "small", CORPUS_PAIRS, vocab_size=65_536)
    written(tmp_path / "large", CORPUS_PAIRS, vocab_size=65_537)

    assert (tmp_path / "small" / "source.bin").read_bytes() == b"\5\0\6\0\7\0\xff\xff"
    assert (tmp_path / "large" / "target.bin").stat().st_size == 3 * 4
    assert corpus_content(Corpus.open(tmp_path / "large")) == CORPUS_PAIRS


def test_many_sentences_are_written_as_one_by_one(tmp_path: Path) -> None:
    """Arrays of ids and lengths can be mixed with single pairs, in order."""
    with CorpusWriter(tmp_path / "c", vocab_size=100) as writer:
        writer.add([1, 2], [3])
        writer.extend(0, np.array([4, 5, 6]), np.array([1, 0, 2]))
        writer.extend(1, np.array([7]), np.array([0, 1, 0]))
        writer.add([8], [9, 9])
    corpus = Corpus.open(tmp_path / "c")

    pairs = [tuple(side.tolist() for side in corpus.pair(row)) for row in range(len(corpus))]

    assert pairs == [([1, 2], [3]), ([4], []), ([], [7]), ([5, 6], []), ([8], [9, 9])]
    assert corpus.arrays["source"].lengths()[:].tolist() == [2, 1, 0, 2, 1]


def test_an_id_that_does_not_fit_is_not_wrapped(tmp_path: Path) -> None:
    """A wrong vocabulary size must not corrupt ids; no folder remains."""
    with (
        pytest.raises(OverflowError),
        CorpusWriter(tmp_path / "c", vocab_size=100) as writer,
    ):
        writer.add([1 << 16], [1])

    assert list(tmp_path.iterdir()) == []


def test_rows_are_bounded(tmp_path: Path) -> None:
    """Negative rows do not count from the end."""
    corpus = written(tmp_path / "c", CORPUS_PAIRS)

    for row in (-1, 3):
        with pytest.raises(IndexError, match=f"row {row} is out of range for a corpus of 3 pairs"):
            corpus.pair(row)


@pytest.mark.parametrize("name", ["source.bin", "target.bin", "source.offsets", "target.offsets"])
@pytest.mark.parametrize("change", [-1, 1, None])
def test_a_file_of_another_length_is_refused(tmp_path: Path, name: str, change: int | None) -> None:
    """An incomplete copy is detected on opening, not in the middle of an epoch."""
    written(tmp_path / "c", CORPUS_PAIRS)
    path = tmp_path / "c" / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if change < 0 else path.read_bytes() + b"\0")

    with pytest.raises(InputError, match=f"corpus is damaged: {name}") as caught:
        Corpus.open(tmp_path / "c")

    assert caught.value.location == str(path)
    assert "prepare the data again" in caught.value.help


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells")
def test_lengths_that_were_read_once_take_no_memory(tmp_path: Path) -> None:
    """A process maps the offsets, and has none of their pages after a plan has read all lengths."""
    path = tmp_path / "x.offsets"
    (np.arange(1 << 17) * 3).astype("<i8").tofile(path)
    offsets = arrays.mapped(path, arrays.OFFSET, 1 << 17)

    def kilobytes() -> int:
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        next(line for line in lines if line.endswith(str(path)))
        return int(next(line for line in lines if line.startswith("Rss:")).split()[1])

    assert offsets.sum() > 0
    assert kilobytes() >= 1 << 10

    lengths = arrays.StoredLengths(offsets, 1, path)[:]

    assert kilobytes() == 0
    assert set(lengths.tolist()) == {4}
    assert offsets[1000] == 3000


def test_offsets_that_are_nonsense_are_refused(tmp_path: Path) -> None:
    """The number of bytes is right, but the content is not."""
    written(tmp_path / "c", CORPUS_PAIRS)
    path = tmp_path / "c" / "source.offsets"

    np.array([0, 3, 2, 4], dtype="<i8").tofile(path)
    with pytest.raises(InputError, match="has decreasing offsets"):
        _ = Corpus.open(tmp_path / "c").summary
    np.array([0, 3, 3, 5], dtype="<i8").tofile(path)
    with pytest.raises(InputError, match="does not match the header"):
        Corpus.open(tmp_path / "c")


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"format": 1}', '{"format": 1, "pairs": 1'])
def test_a_damaged_header_is_refused(tmp_path: Path, text: str) -> None:
    """Any damaged content raises an `InputError`."""
    written(tmp_path / "c", CORPUS_PAIRS)
    (tmp_path / "c" / "header.json").write_text(text)

    with pytest.raises(InputError, match="header is damaged"):
        Corpus.open(tmp_path / "c")


def test_other_formats_and_other_folders_are_refused(tmp_path: Path) -> None:
    """A corpus of a later version is not read as this format."""
    written(tmp_path / "c", CORPUS_PAIRS)
    path = tmp_path / "c" / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))

    with pytest.raises(InputError, match="format 2, but this version reads format 1"):
        Corpus.open(tmp_path / "c")
    with pytest.raises(InputError, match="the folder is not a corpus"):
        Corpus.open(tmp_path)


def test_an_open_corpus_outlives_its_replacement(tmp_path: Path) -> None:
    """A training run keeps its data when they are prepared again."""
    corpus = written(tmp_path / "c", CORPUS_PAIRS)

    shutil.rmtree(tmp_path / "c")
    written(tmp_path / "c", [([1], [2])])

    assert corpus_content(corpus) == CORPUS_PAIRS
