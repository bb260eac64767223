"""Compare translations of a test set by a model and by its exports to CTranslate2.

python benchmarks/ctranslate2_agreement.py CKPT --data-root DIR   # with the extra 'ctranslate2'

Both use the same beam and divide log P by length^alpha, a penalty that both support.  Their
stopping rules differ: CTranslate2 stops when beam * patience hypotheses have ended, Weft when no
active hypothesis can still become the best.  So CTranslate2 runs with its default patience and
with larger values, and for lines that differ, the model's own scores of both outputs are printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import ctranslate2
import torch
from weft.extensions.interop.export.ctranslate2 import export_ctranslate2
from weft.runtime.api import Model, open_model
from weft.runtime.data.prepare import records_of
from weft.runtime.metrics.text import score

BATCH = 32
"""Sentences per batch of CTranslate2."""


Scored = list[tuple[str, float]]
"""Translations with their scores."""


def theirs(
    model: Model, lines: Sequence[str], quantization: str, patience: Sequence[float]
) -> dict[float, Scored]:
    """Return CTranslate2's translation and score of each line, for each patience."""
    tokenizers, search = model.line_predictor(), model.search
    source, target = tokenizers.source, tokenizers.target
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "export"
        checked = export_ctranslate2(model.checkpoint, folder, quantization=quantization)
        print(f"{quantization}: {checked}")
        compute = "float32" if quantization == "float32" else "default"
        engine = ctranslate2.Translator(
            str(folder), compute_type=compute, intra_threads=torch.get_num_threads()
        )
        results = {
            one: engine.translate_batch(
                [source.pieces(ids) for ids in source.encode_many(lines)],
                max_batch_size=BATCH,
                beam_size=search.rows,
                length_penalty=search.alpha,
                patience=one,
                suppress_sequences=[[piece] for piece in target.pieces([target.bos, target.pad])],
                min_decoding_length=0,
                return_scores=True,
            )
            for one in patience
        }
    number = {piece: index for index, piece in enumerate(target.pieces(range(target.vocab_size)))}

    def read(one: ctranslate2.TranslationResult) -> tuple[str, float]:
        return target.decode(number[piece] for piece in one.hypotheses[0]), one.scores[0]

    return {patient: [read(one) for one in found] for patient, found in results.items()}


def test_pairs(model: Model, given: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the source lines and the references of a test set of the model's run."""
    if model.answering is None:
        sys.exit("the checkpoint has no run, so it has no test sets")
    data, columns = model.answering.run.data, model.answering.columns
    if given.data_root:
        data = data.model_copy(update={"root": given.data_root})
    records = islice(records_of(data, given.test, columns), given.lines)
    pairs = [[one.values[columns[side].field] for side in ("source", "target")] for one in records]
    return [source for source, _ in pairs], [target for _, target in pairs]


def main() -> None:
    """Print the table of scores, and each line that differs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("checkpoint")
    options.add_argument("--test", default="test_2016_flickr")
    options.add_argument("--data-root")
    options.add_argument("--beam", type=int, default=5)
    options.add_argument("--alpha", type=float, default=1.0)
    options.add_argument("--lines", type=int, help="use only the first lines of the test set")
    options.add_argument("--patience", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    given = options.parse_args()
    search = {"beam": given.beam, "alpha": given.alpha}
    model = open_model(given.checkpoint, predict={**search, "penalty": "length"})
    lines, references = test_pairs(model, given)

    found = {"ours, length^alpha": model.translate(lines)}
    gnmt = open_model(given.checkpoint, predict={**search, "penalty": "gnmt"})
    found["ours, GNMT"] = gnmt.translate(lines)
    exact: dict[float, Scored] = {}
    for quantization in ("float32", "int8"):
        results = theirs(model, lines, quantization, given.patience)
        for patience, scored in results.items():
            found[f"CTranslate2 {quantization}, {patience:g}"] = [text for text, _ in scored]
        exact = exact or results

    ours = found["ours, length^alpha"]
    print(f"\n{given.test}: {len(lines):,} lines, beam {given.beam}, alpha {given.alpha}")
    for name, texts in found.items():
        scores = score(texts, references)
        same = sum(a == b for a, b in zip(texts, ours, strict=True))
        mixed, lower = scores.values["bleu"], scores.values["bleu_lc"]
        print(f"  {name:24} BLEU {mixed:6.2f}, -lc {lower:6.2f}   {same:5,} lines as ours")
    print(f"  {scores.signatures['bleu']}")
    for patience, scored in exact.items():
        report(model, lines, ours, scored, f"float32, patience {patience:g}")


def report(
    model: Model, lines: Sequence[str], ours: Sequence[str], exact: Scored, setting: str
) -> None:
    """Print each differing line with the model's scores of both outputs."""
    print(f"\nlines that differ, {setting}:")
    better = {"ours": 0, "theirs": 0}
    for n, (text, own) in enumerate(exact):
        if text == ours[n]:
            continue
        both = list(model.score([(lines[n], ours[n]), (lines[n], text)]))
        better["ours" if both[0].score >= both[1].score else "theirs"] += 1
        print(f"\nline {n + 1}: {lines[n]}")
        for name, output, one in zip(("ours", "theirs"), (ours[n], text), both, strict=True):
            size = len(one.tokens)
            print(f"  {name:6} {one.score:.5f} = {one.log_probability:.4f} / {size}  {output}")
        print(f"  CTranslate2's own score: {own:.5f}")
    ours_better, theirs_better = better.values()
    print(f"\n{setting}: the model prefers ours {ours_better} times, theirs {theirs_better} times")


if __name__ == "__main__":
    main()
