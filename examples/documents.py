"""Write documents whose later parts repeat the first one, for a model with a memory of segments.

    python examples/documents.py outputs/documents

writes `train.jsonl` and `valid.jsonl`.  Each document is a passage of random words, repeated.  From
its second copy on, every word can be predicted by a model that reads as far back as one passage.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

WORDS, PASSAGE, COPIES = 40, 16, 6
"""Different words, words of a passage, and its copies in a document."""


def document(chance: random.Random) -> str:
    """Return a passage of random words, repeated."""
    passage = [f"w{chance.randrange(WORDS)}" for _ in range(PASSAGE)]
    return " ".join(passage * COPIES)


def write(folder: Path, counts: dict[str, int], seed: int = 1) -> None:
    """Write documents as JSON lines.

    Args:
        folder: output folder.
        counts: name of a split to its number of documents.
        seed: seed of the random words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    for split, count in counts.items():
        lines = [json.dumps({"text": document(chance)}) for _ in range(count)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder, {"train": 2000, "valid": 100})
