"""Measure which cross-attention of an English-German model aligns words with their translations.

    python benchmarks/align.py CKPT --source test.en.gz [--lines 300]

Lines are translated.  For each word of a small dictionary that occurs once in a source and whose
translation occurs once in the output, the script checks whether the attention's largest weight is
on that source word.
"""

from __future__ import annotations

import argparse
from itertools import islice

import torch
import weft
from weft.runtime.data.text_files import read_lines

WORDS = {
    "man": "mann",
    "dog": "hund",
    "woman": "frau",
    "men": "männer",
    "girl": "mädchen",
    "boy": "junge",
    "people": "personen",
    "children": "kinder",
    "two": "zwei",
    "three": "drei",
    "red": "rotes roten rot rotem",
    "blue": "blauen blaues blau",
    "water": "wasser",
    "child": "kind",
    "street": "straße",
    "hat": "hut",
    "shirt": "hemd",
    "beach": "strand",
    "dogs": "hunde",
    "women": "frauen",
    "young": "junger junge junges",
    "ball": "ball",
    "snow": "schnee",
    "white": "weißen weißes",
    "grass": "gras",
    "in": "in im",
    "and": "und",
    "with": "mit",
    "black": "schwarzen schwarzes schwarzer",
    "group": "gruppe",
    "four": "vier",
    "bike": "fahrrad",
    "field": "feld",
    "car": "auto",
    "playing": "spielen spielt",
    "standing": "steht stehen",
    "band": "band",
    "guitar": "gitarre",
    "building": "gebäude",
    "camera": "kamera",
}
"""English word to its possible German translations."""


def plain(pieces: tuple[str, ...]) -> list[str]:
    """Return pieces as lower-case words without the word-boundary mark."""
    return [piece.strip("\u2581").lower() for piece in pieces]


def main() -> None:
    """Print the fraction of aligned words per attention, for both rows that may align."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--source", required=True)
    parser.add_argument("--lines", type=int, default=300)
    options = parser.parse_args()
    model = weft.open(options.checkpoint)
    lines = list(islice(read_lines(options.source), options.lines))
    found: dict[tuple[str, str], list[bool]] = {}
    for maps in model.attention(lines, model.translate(lines)):
        source, target = plain(maps.source), plain(maps.target)
        layers = {path: w.mean(0) for path, w in maps.weights.items() if "cross" in path}
        layers["mean of all"] = torch.stack(list(layers.values())).mean(0)
        for word, translated in WORDS.items():
            ones = [one for one in target if one in translated.split()]
            if source.count(word) != 1 or len(ones) != 1:
                continue
            place = target.index(ones[0])
            for row, what in ((place - 1, "predicts it"), (place, "reads it")):
                for path, weights_TS in layers.items():
                    best = int(weights_TS[row, : len(source) - 1].argmax())
                    found.setdefault((path, what), []).append(best == source.index(word))
    for (path, what), hits in sorted(found.items(), key=lambda one: -sum(one[1])):
        print(f"{sum(hits) / len(hits):6.1%} of {len(hits)}  {path}, the row that {what}")


if __name__ == "__main__":
    main()
