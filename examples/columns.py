"""Write the data of the shipped classification, tagging and regression runs as tables.

    python examples/columns.py languages OUT en=train.en.gz de=train.de.gz fr=train.fr.gz
    python examples/columns.py tags OUT train=train.trees.gz test=dev.trees.gz
    python examples/columns.py pairs OUT train=train.en.gz,train.de.gz valid=val.en.gz,val.de.gz
    python examples/columns.py genres OUT train=train.trees.gz:essay=1,letter=250 test=...
    python examples/columns.py digits OUT
    python examples/columns.py subsets OUT train.en.gz,train.de.gz dev.en.gz,dev.de.gz --sizes 5000

`languages` writes lines of text with their language, `tags` the words of bracketed trees with
their part-of-speech tags, and `pairs` sentences and their translations as one text, separated by
`<to>`, with the number of words of the translation; all as JSON Lines in OUT.  `digits` writes the
8 x 8 digits that scikit-learn ships as `.npz` files.  A fifth of the digits, `--held-out` lines of
each language, and, without a file `valid`, the last `--held-out` trees of `train` are validation
data.  `genres` cuts the trees of documents that are sorted by genre into passages of `--passage`
sentences, from the number of the first tree of each genre; a tenth of each genre of `train`, its
end, is validation data.  `subsets` writes parallel text for the study `tatoeba-curve`: the first
pairs of the shuffled training data as `train-SIZE.en` and `.de`, so that subsets are parts of the
larger ones, and the halves of the development data as `valid` and `test`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

LEAF = re.compile(r"\(([^()\s]+) ([^()\s]+)\)")
"""A word of a bracketed tree, with its tag."""
SEPARATOR = "<to>"
"""Stands between a sentence and its translation."""


def lines_of(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, plain or gzip, without their line feeds."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n")


def languages(
    files: Mapping[str, str], most: int, held_out: int, seed: int
) -> dict[str, list[dict[str, str]]]:
    """Return lines and their languages: at most `most` for training, `held_out` for validation.

    Each line occurs once, and none that two languages share.

    Args:
        files: language to its file.
        most: maximum number of training lines of a language.
        held_out: validation lines of a language.
        seed: chooses the lines, and shuffles them.
    """
    unique = {
        name: dict.fromkeys(filter(str.strip, lines_of(path))) for name, path in files.items()
    }
    counts: dict[str, int] = {}
    for each in unique.values():
        for line in each:
            counts[line] = counts.get(line, 0) + 1
    random = Random(seed)
    found: dict[str, list[dict[str, str]]] = {"train": [], "valid": []}
    for name, each in unique.items():
        own = [line for line in each if counts[line] == 1]
        random.shuffle(own)
        rows = [{"text": line, "language": name} for line in own[: held_out + most]]
        found["valid"] += rows[:held_out]
        found["train"] += rows[held_out:]
    for rows in found.values():
        random.shuffle(rows)
    return found


def tagged(trees: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the words of each tree and their tags, separated by spaces."""
    for tree in trees:
        if leaves := LEAF.findall(tree):
            tags, words = zip(*leaves, strict=True)
            yield {"text": " ".join(words), "tags": " ".join(tags)}


def tags(files: Mapping[str, str], held_out: int) -> dict[str, list[dict[str, str]]]:
    """Return tagged words by split; without a file `valid`, it is the end of the file `train`.

    The end, and not a random choice, since neighboring trees come from the same document.

    Args:
        files: split to its file of bracketed trees.
        held_out: validation trees that are cut off `train`.
    """
    found = {split: list(tagged(lines_of(path))) for split, path in files.items()}
    if "train" in found and "valid" not in found:
        cut = max(0, len(found["train"]) - held_out)
        found["train"], found["valid"] = found["train"][:cut], found["train"][cut:]
    return found


def genres(files: Mapping[str, str], passage: int) -> dict[str, list[dict[str, str]]]:
    """Return passages and their genres by split; the end of each genre of `train` is `valid`.

    Args:
        files: split to its file of bracketed trees, a colon, and the number of the first tree of
            each genre, such as `train.trees.gz:essay=1,letter=250`.
        passage: sentences of a passage; the rest of a genre is left out.
    """
    found: dict[str, list[dict[str, str]]] = {}
    for split, named in files.items():
        path, _, marks = named.rpartition(":")
        texts = [row["text"] for row in tagged(lines_of(path))]
        starts = [
            (name, int(first) - 1) for name, first in (m.split("=") for m in marks.split(","))
        ]
        ends = [first for _, first in starts[1:]] + [len(texts)]
        for (name, first), end in zip(starts, ends, strict=True):
            rows = [
                {"text": " ".join(texts[place : place + passage]), "genre": name}
                for place in range(first, end - passage + 1, passage)
            ]
            cut = len(rows) - len(rows) // 10 if split == "train" else len(rows)
            found.setdefault(split, []).extend(rows[:cut])
            if split == "train":
                found.setdefault("valid", []).extend(rows[cut:])
    return found


def pairs(files: str) -> Iterator[dict[str, Any]]:
    """Yield sentences with their translations, from two files separated by a comma."""
    sources, targets = map(lines_of, files.split(","))
    for source, target in zip(sources, targets, strict=True):
        yield {
            "text": f"{source} {SEPARATOR} {target}",
            "source": source,
            "words": len(target.split()),
        }


def subsets(train: str, dev: str, sizes: Iterable[int], seed: int) -> dict[str, list[str]]:
    """Return the lines of each file by its name.

    Args:
        train: both files of the training data, separated by a comma.
        dev: both files of the development data.
        sizes: numbers of pairs.
        seed: shuffles the training data.
    """

    def both(files: str) -> list[tuple[str, str]]:
        left, right = files.split(",")
        return list(zip(lines_of(left), lines_of(right), strict=True))

    pairs_, held = both(train), both(dev)
    Random(seed).shuffle(pairs_)
    half = len(held) // 2
    parts = {f"train-{size}": pairs_[:size] for size in sizes}
    parts |= {"valid": held[:half], "test": held[half:]}
    return {
        f"{name}.{language}": [pair[side] for pair in part]
        for name, part in parts.items()
        for side, language in enumerate(("en", "de"))
    }


def digits(seed: int) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """Return the images [1 8 8] between 0 and 1 and the classes of scikit-learn's digits."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - only this corpus needs it

    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    image = (data.images[order, None] / 16).astype(np.float32)
    label = data.target[order].astype(str)
    cut = len(order) // 5
    return {
        "valid": {"image": image[:cut], "label": label[:cut]},
        "train": {"image": image[cut:], "label": label[cut:]},
    }


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as JSON Lines."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Write the tables that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kind", choices=("languages", "tags", "genres", "pairs", "digits", "subsets")
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="*", help="NAME=FILE")
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--held-out", type=int, default=1000)
    parser.add_argument("--passage", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="*", default=[5000, 10000, 20000, 50000])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.kind == "subsets":
        train, dev = given.files
        for name, lines in subsets(train, dev, given.sizes, given.seed).items():
            text = "".join(f"{line}\n" for line in lines)
            (given.out / name).write_text(text, encoding="utf-8", newline="\n")
        return 0
    files = dict(each.split("=", 1) for each in given.files)
    if given.kind == "digits":
        for split, arrays in digits(given.seed).items():
            np.savez(given.out / f"{split}.npz", **arrays)  # type: ignore[arg-type]
        return 0
    made: Mapping[str, Iterable[Mapping[str, Any]]]
    if given.kind == "languages":
        made = languages(files, given.most, given.held_out, given.seed)
    elif given.kind == "tags":
        made = tags(files, given.held_out)
    elif given.kind == "genres":
        made = genres(files, given.passage)
    else:
        made = {split: pairs(names) for split, names in files.items()}
    for split, rows in made.items():
        write_rows(rows, given.out / f"{split}.jsonl")
    return 0


if __name__ == "__main__":
    sys.exit(main())
