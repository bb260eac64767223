"""Shards: how they are made and filtered."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from weft.runtime.data.prepare import prepare
from weft.runtime.data.settings import FilterSettings
from weft.runtime.data.shards import merge_shards as gather
from weft.runtime.data.shards import shards
from weft.runtime.data.shards.corpus import Corpus
from weft.runtime.data.shards.filters import FilterCount, refuse
from weft.runtime.data.shards.making import make_shards
from weft.runtime.data.tokenizer import Tokenizer
from weft.runtime.data.vocabularies import VocabularyFile
from weft.specs.findings import InputError

from ..pairs import bpe, changed, lines, pairs, texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.data.table_settings import DataSettings


PAIRS = 60
TOKENIZER = bpe(40)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataSettings:
    """Return 60 pairs in two training files, in shards of 8; every 5th pair equals the 1st."""
    monkeypatch.setattr(shards, "SHARD", 8)
    root = tmp_path / "text"
    root.mkdir()
    rows = [f"a{number % 5 and number} b" for number in range(PAIRS)]
    for name, part in (("one", rows[:33]), ("two", rows[33:]), ("valid", rows[:3])):
        for side in ("en", "de"):
            text = "".join(f"{line} {side}\n" for line in part)
            (root / f"{name}.{side}").write_text(text)
    train = lines(["one.en", "two.en"], ["one.de", "two.de"])
    return pairs(root, train, lines(["valid.en"], ["valid.de"]))


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def made_shards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the number of each shard made in this process is appended."""
    numbers: list[int] = []
    make = shards.Maker.make

    def recorded(self: shards.Maker, piece: shards.ShardText) -> None:
        numbers.append(piece.number)
        make(self, piece)

    monkeypatch.setattr(shards.Maker, "make", recorded)
    return numbers


@pytest.mark.integration
def test_the_number_of_workers_changes_nothing(data: DataSettings, tmp_path: Path) -> None:
    """Every byte is equal, and the pairs are in order."""
    alone = prepare(data, TOKENIZER, tmp_path / "alone", processes=1)
    prepare(data, TOKENIZER, tmp_path / "three", processes=3)

    assert content(tmp_path / "alone") == content(tmp_path / "three")
    assert texts(alone, "source") == [f"a{number % 5 and number} b en" for number in range(PAIRS)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "text", "three"]


@pytest.mark.integration
def test_an_endless_word_is_dropped_without_being_tokenized(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word of ten megabytes would take seconds; white space does not count as length."""
    seen: list[int] = []
    encode = Tokenizer.encode_many

    def measured(self: Tokenizer, texts: Sequence[str], **options: Any) -> list[list[int]]:
        seen.extend(map(len, texts))
        return encode(self, texts, **options)

    monkeypatch.setattr(Tokenizer, "encode_many", measured)
    for side in ("en", "de"):
        path = Path(data.root) / f"one.{side}"
        path.write_text(f"{path.read_text()}{'ab' * 2_000_000}\na{' ' * 3_000_000}b\n")
    few = changed(data, filter={"max_length": 20})

    made = prepare(few, TOKENIZER, tmp_path / "out", processes=1)

    assert made.report["train"]["dropped"] == {"too_long": 1}
    assert made.report["train"]["kept"] == PAIRS + 1
    assert max(seen) <= 21 * shards.LONGEST_PIECE


@pytest.mark.integration
def test_the_first_of_equal_pairs_is_kept(data: DataSettings, tmp_path: Path) -> None:
    """Every fifth line is 'a0 b', of which one is kept, independent of the shard boundaries."""
    unique = changed(data, filter={"duplicates": "drop"})

    made = prepare(unique, TOKENIZER, tmp_path / "out", processes=1)

    assert made.report["train"]["read"] == PAIRS
    assert made.report["train"]["dropped"] == {"duplicate": PAIRS // 5 - 1}
    assert made.report["train"]["kept"] == len(made.train) == PAIRS - PAIRS // 5 + 1
    assert texts(made, "target") == ["a0 b de", *(f"a{n} b de" for n in range(PAIRS) if n % 5)]
    assert len(made.valid) == 3


@pytest.mark.integration
def test_texts_that_are_only_equal_once_they_are_cut_are_no_duplicates(
    data: DataSettings, tmp_path: Path
) -> None:
    """Cut to one token, the texts of both sides differ less than they do whole."""
    text = {"type": "text", "tokenizer": "tokenizer", "max_length": 2}
    columns = {"source": text, "target": text}
    whole = prepare(changed(data, filter={"duplicates": "drop"}), TOKENIZER, tmp_path / "a")
    cut = changed(data, columns=columns, filter={"duplicates": "drop"})

    made = prepare(cut, TOKENIZER, tmp_path / "b")

    assert len({*texts(made, "target")}) < len({*texts(whole, "target")})
    assert made.report["train"] == whole.report["train"]


@pytest.mark.integration
def test_a_stopped_preparation_resumes(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete shards are kept, a damaged one is made again, and the result is the same."""
    prepare(data, TOKENIZER, tmp_path / "whole", processes=1)
    out, work = tmp_path / "out", tmp_path / ".out.work"

    def stop(stage: str, done: int, _: int | None) -> None:
        if stage == "train" and done >= 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(data, TOKENIZER, out, processes=1, report=stop)
    assert not out.exists()
    damaged = work / "train.shards" / "000001.shard"
    kept = damaged.read_bytes()
    damaged.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    numbers, messages = made_shards(monkeypatch), list[str]()

    prepare(data, TOKENIZER, out, processes=1, log=messages.append)

    assert numbers == [1, 3, 4, 5, 6, 7, 8]
    assert messages == [f"resuming the preparation in {work}"]
    assert content(out) == content(tmp_path / "whole")
    assert not work.exists()


@pytest.mark.integration
def test_other_settings_discard_partial_work(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work begun with other settings is discarded."""

    def stop(stage: str, *_: Any) -> None:
        if stage == "train":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(data, TOKENIZER, tmp_path / "out", processes=1, report=stop)
    numbers = made_shards(monkeypatch)

    other = changed(data, filter={"max_length": 20})
    prepare(other, TOKENIZER, tmp_path / "out", processes=1)

    assert numbers == [0, *range(9)]  # the shard of validation, then all of training


@pytest.mark.integration
@pytest.mark.parametrize("count", [1, 2])
def test_the_first_bad_line_is_named(data: DataSettings, tmp_path: Path, count: int) -> None:
    """The error does not depend on which worker is fastest."""
    made = prepare(data, TOKENIZER, tmp_path / "out", processes=1)
    path = Path(data.root) / "one.de"
    rows = path.read_bytes().splitlines(keepends=True)
    for number in (12, 20, 28):
        rows[number - 1] = b"\xff\n"
    path.write_bytes(b"".join(rows))
    model = VocabularyFile(made.folder / "tokenizer.model")
    sides = tuple(shards.Side(name=name, vocabulary=model) for name in ("source", "target"))
    recipe = shards.ShardRecipe(folder=tmp_path, sides=sides, limits=data.filter)
    paths = [(Path(data.root) / "one.en", path)]

    with pytest.raises(InputError, match="0xff") as caught:
        list(make_shards(recipe, shards.pieces(paths, [33]), count))

    assert caught.value.location == f"{path}:12"


@pytest.mark.integration
def test_a_killed_worker_costs_only_its_shard(data: DataSettings, tmp_path: Path) -> None:
    """Another process makes it; every byte is equal to those of an undisturbed preparation."""
    prepare(data, TOKENIZER, tmp_path / "alone", processes=1)
    killed: list[int] = []

    def kill(stage: str, *_: Any) -> None:
        if stage == "train" and len(killed) < 2:
            children = [pid for pid in children_of(os.getpid()) if pid not in killed]
            killed.extend(children[:1])
            for pid in children[:1]:
                os.kill(pid, signal.SIGKILL)

    prepare(data, TOKENIZER, tmp_path / "out", processes=2, report=kill)

    assert len(killed) == 2
    assert content(tmp_path / "out") == content(tmp_path / "alone")


def children_of(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    return [
        int(pid)
        for path in Path(f"/proc/{parent}/task").glob("*/children")
        for pid in path.read_text().split()
    ]


@pytest.mark.integration
def test_processes_are_counted_from_one(data: DataSettings, tmp_path: Path) -> None:
    """Zero processes raise an error."""
    with pytest.raises(InputError, match="0 is not a valid number of processes"):
        prepare(data, TOKENIZER, tmp_path / "out", processes=0)


@pytest.mark.integration
def test_duplicates_are_found_across_parts(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashes sorted in parts give the same result as one set of all hashes."""
    monkeypatch.setattr(gather, "CAPACITY", 10)
    unique = changed(data, filter={"duplicates": "drop"})

    prepare(unique, TOKENIZER, tmp_path / "out", processes=1)
    corpus = Corpus.open(tmp_path / "out" / "train")

    rows = [tuple(side.tobytes() for side in corpus.pair(row)) for row in range(len(corpus))]
    assert len(set(rows)) == len(rows) == PAIRS - PAIRS // 5 + 1


SCORED = [
    ("a", "1", 0.5),
    ("b", "2", 1.0),
    ("a", "3", 2.0),
    ("a", "4", 2.0),
    ("b", "5", -1.0),
    ("c", "6", 0.0),
]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({}, "123456"),
        ({"duplicates_of": ["source"]}, "126"),
        ({"duplicates_of": ["source"], "best_by": "score"}, "236"),
        ({"duplicates_of": ["target"], "best_by": "score"}, "123456"),
    ],
)
@pytest.mark.parametrize("capacity", [2, 100])
def test_of_duplicates_the_best_or_the_first_is_kept_by_hand(
    rules: dict[str, Any],
    kept: str,
    capacity: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three translations of one sentence, two of another, over shards of two rows."""
    monkeypatch.setattr(shards, "SHARD", 2)
    monkeypatch.setattr(gather, "CAPACITY", capacity)
    for number, name in enumerate(("en", "de", "score")):
        (tmp_path / name).write_text("".join(f"{row[number]}\n" for row in SCORED))
    train = lines(["en"], ["de"])
    train["lines"]["score"] = ["score"]
    settings = {"duplicates": "drop", **rules}

    made = prepare(
        pairs(tmp_path, train, train, filter=settings), bpe(20), tmp_path / "out", processes=1
    )

    vocabulary = made.vocabularies["tokenizer"]
    targets = [vocabulary.decode(made.train.corpus.pair(row)[1]) for row in range(len(made.train))]
    assert "".join(targets) == kept
    assert made.report["train"]["dropped"] == (
        {"duplicate": 6 - len(kept)} if len(kept) < 6 else {}
    )


@pytest.mark.integration
def test_a_score_that_is_no_number_names_its_line(tmp_path: Path) -> None:
    """Before anything is written."""
    for name, text in (("en", "a\nb\n"), ("de", "c\nd\n"), ("score", "1\nhigh\n")):
        (tmp_path / name).write_text(text)
    train = lines(["en"], ["de"])
    train["lines"]["score"] = ["score"]
    rules = {"duplicates": "drop", "duplicates_of": ["source"], "best_by": "score"}

    with pytest.raises(InputError, match="not a finite number") as caught:
        prepare(pairs(tmp_path, train, train, filter=rules), bpe(12), tmp_path / "out", processes=1)

    assert caught.value.location.endswith("score:2")
    assert not (tmp_path / "out").exists()


ONE = """
import sys
from weft.runtime.data.prepare import prepare
from weft.runtime.data.table_settings import DataSettings
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.shards import shards
shards.SHARD = 100
data, out = DataSettings.model_validate_json(sys.argv[1]), sys.argv[2]
prepare(data, {"tokenizer": PieceSettings(vocab_size=35)}, out, processes=2)
"""


def marked(mark: str) -> list[int]:
    """Return the processes that have a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")
def test_killed_at_random_moments_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Ten times SIGKILL, also while shards are written; no worker outlives its parent."""
    rng = random.Random(1)
    words = [f"w{number}" for number in range(30)]
    for side in ("en", "de"):
        rows = (" ".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(20_000))
        (tmp_path / f"text.{side}").write_text("".join(f"{row}\n" for row in rows))
    split = lines(["text.en"], ["text.de"])
    data = pairs(tmp_path, split, split).model_dump_json()
    mark = f"WEFT_TEST_MARK={rng.random()}"
    env = {**os.environ, **dict([mark.split("=")]), "PYTHONPATH": os.pathsep.join(sys.path)}

    def begin(name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ONE, data, str(tmp_path / name)], env=env)

    began = time.monotonic()
    assert begin("whole").wait() == 0
    took = time.monotonic() - began
    for _ in range(10):
        process = begin("out")
        time.sleep(rng.uniform(0.2, 0.7) * took)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 20
        while left := marked(mark):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
    assert begin("out").wait() == 0

    assert content(tmp_path / "out").keys() == content(tmp_path / "whole").keys()
    for name, found in content(tmp_path / "whole").items():
        assert found == (tmp_path / "out" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (0, 3, "empty_source"),
        (3, 0, "empty_target"),
        (0, 0, "empty_source"),
        (10, 10, None),
        (11, 10, "too_long"),
        (10, 11, "too_long"),
        (10, 5, None),
        (5, 10, None),
        (10, 4, "ratio"),
        (4, 10, "ratio"),
        (11, 1, "too_long"),
    ],
)
def test_a_limit_itself_is_kept(source: int, target: int, reason: str | None) -> None:
    """At most 10 tokens, and at most twice as many on one side as on the other."""
    assert refuse((source, target), FilterSettings(max_length=10, max_ratio=2.0)) == reason


def test_without_a_ratio_any_ratio_is_kept() -> None:
    """None means no limit."""
    assert refuse((1, 250), FilterSettings()) is None


def test_every_pair_is_counted_once() -> None:
    """Read equals kept plus dropped; spared pairs are among the kept."""
    limits = FilterSettings(max_length=3, max_ratio=2.0)
    pairs = [(1, 1), (0, 1), (4, 4), (3, 1), (2, 2)]
    strict, lenient = FilterCount(), FilterCount()

    kept = [strict.keep(pair, limits) for pair in pairs]
    spared = [lenient.keep(pair, limits, only_empty=True) for pair in pairs]

    assert kept == [True, False, False, False, True]
    assert strict.as_dict() == {
        "read": 5,
        "kept": 2,
        "dropped": {"empty_source": 1, "ratio": 1, "too_long": 1},
        "spared": {},
    }
    assert spared == [True, False, True, True, True]
    assert lenient.as_dict() == {
        "read": 5,
        "kept": 4,
        "dropped": {"empty_source": 1},
        "spared": {"ratio": 1, "too_long": 1},
    }
