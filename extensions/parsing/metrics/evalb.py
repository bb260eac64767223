"""EVALB: labeled bracket scores of parses against gold trees, as computed by the program.

A bracket is (start, end, label) over the words.  Leaves with a deleted tag are removed before
brackets are indexed, and so are brackets over no word.  Totals are sums over the corpus.

Unlike the program, this has no limits of size, and continues after any number of errors.

Source: Sekine & Collins 1997, EVALB; Black et al. 1991 (PARSEVAL); Collins 1997, whose
settings are the default.

`evalb_report.py` writes the report in the layout of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from ....plugin import InputError, nearest
from ..trees.trees import Leaf, Tree, read_line

Status = Literal["valid", "error", "skip"]
Pair = tuple[str, str]
_Bracket = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class EvalbSettings:
    """Settings of a `.prm` file; the defaults are those of Collins (COLLINS.prm)."""

    delete_label: frozenset[str] = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
    """Tags whose words are dropped, and labels whose brackets are dropped."""
    delete_label_for_length: frozenset[str] = frozenset({"-NONE-"})
    """Tags whose words do not count in the length of a sentence."""
    eq_label: frozenset[Pair] = frozenset({("ADVP", "PRT")})
    """Pairs of labels or tags that count as equal, in both directions."""
    eq_word: frozenset[Pair] = frozenset()
    """Pairs of words that count as equal, in both directions."""
    quote_label: frozenset[str] = frozenset()
    """Tags of `'`, `"` and `/` as quotation marks.  Where the numbers of words differ, marks that
    only one side deletes are restored."""
    cutoff: int = 40
    """Maximum length of the sentences in the second summary."""
    labelled: bool = True
    """Whether the labels of brackets must agree."""


COLLINS = EvalbSettings()
_QUOTES = ("'", '"', "/")
"""Words that count as quotation marks if their tag is in `quote_label`."""
_FEW = 2
"""Maximum crossing brackets of the sentences in "2 or less crossing"."""
_SETS = ("DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL")
_PAIRS = ("EQ_LABEL", "EQ_WORD")
_NUMBERS = ("CUTOFF_LEN", "LABELED")
_IGNORED = ("DEBUG", "MAX_ERROR")
"""Settings of the program's output and error limit, which do not affect the scores."""


def read_settings(text: str, location: str) -> EvalbSettings:
    """Read the text of a `.prm` file.

    Raises:
        InputError: a line is not a valid setting.
    """
    sets: dict[str, set[str]] = {key: set() for key in _SETS}
    pairs: dict[str, set[Pair]] = {key: set() for key in _PAIRS}
    numbers = {"CUTOFF_LEN": COLLINS.cutoff, "LABELED": 1}
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key, values, at = words[0], words[1:], f"{location}:{number}"
        if key in sets:
            _want(1, key, values, at)
            sets[key].add(values[0])
        elif key in pairs:
            _want(2, key, values, at)
            pairs[key].add((values[0], values[1]))
        elif key in numbers:
            _want(1, key, values, at)
            if not values[0].isdecimal():
                msg = f"'{values[0]}' is not a valid value of {key}"
                raise InputError(msg, location=at, help="give a non-negative integer")
            numbers[key] = int(values[0])
        elif key not in _IGNORED:
            suggestion = nearest(key, [*_SETS, *_PAIRS, *_NUMBERS, *_IGNORED])
            raise InputError(
                f"unknown setting '{key}'",
                location=at,
                help=f"did you mean {suggestion or 'DELETE_LABEL'}?",
            )
    return EvalbSettings(
        delete_label=frozenset(sets["DELETE_LABEL"]),
        delete_label_for_length=frozenset(sets["DELETE_LABEL_FOR_LENGTH"]),
        eq_label=frozenset(pairs["EQ_LABEL"]),
        eq_word=frozenset(pairs["EQ_WORD"]),
        quote_label=frozenset(sets["QUOTE_LABEL"]),
        cutoff=numbers["CUTOFF_LEN"],
        labelled=numbers["LABELED"] != 0,
    )


def _want(count: int, key: str, values: Sequence[str], at: str) -> None:
    if len(values) != count:
        raise InputError(
            f"{key} takes {count} {'value' if count == 1 else 'values'}, not {len(values)}",
            location=at,
            help="write one setting per line",
        )


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """Comparison of one parse with gold; all counts are 0 unless the status is valid."""

    number: int
    """Number of the sentence, from 1."""
    length: int
    """Words of gold, without those in `delete_label_for_length`."""
    status: Status
    problem: str = ""
    """Reason for an error or skip."""
    matched: int = 0
    gold: int = 0
    """Brackets of gold."""
    test: int = 0
    """Brackets of the parse."""
    crossing: int = 0
    """Brackets of the parse that overlap a bracket of gold without nesting."""
    words: int = 0
    tags: int = 0
    """Words whose tag equals that of gold."""

    @property
    def complete(self) -> bool:
        """Whether the brackets of the parse equal those of gold."""
        return self.status == "valid" and self.gold == self.test == self.matched


@dataclass(frozen=True, slots=True)
class EvalbSummary:
    """Sums over sentences, and the derived scores in percent."""

    sentences: int
    errors: int
    skipped: int
    matched: int
    gold: int
    test: int
    crossing: int
    words: int
    tags: int
    complete: int
    """Sentences whose brackets equal those of gold."""
    uncrossed: int
    """Valid sentences without a crossing bracket."""
    crossed_twice: int
    """Valid sentences with two crossing brackets or fewer."""

    @property
    def valid(self) -> int:
        """Number of scored sentences."""
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        """Percentage of gold brackets that were found."""
        return percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """Percentage of the parses' brackets that match gold."""
        return percent(self.matched, self.test)

    @property
    def f1(self) -> float:
        """Harmonic mean of recall and precision."""
        total = self.recall + self.precision
        return 2 * self.recall * self.precision / total if total else 0.0

    @property
    def tagging(self) -> float:
        """Percentage of words with the correct tag."""
        return percent(self.tags, self.words)

    def as_json(self) -> dict[str, float | int]:
        """Return every figure by name."""
        return {
            "sentences": self.sentences,
            "errors": self.errors,
            "skipped": self.skipped,
            "valid": self.valid,
            "recall": self.recall,
            "precision": self.precision,
            "f1": self.f1,
            "complete_match": percent(self.complete, self.valid),
            "average_crossing": self.crossing / self.valid if self.valid else 0.0,
            "no_crossing": percent(self.uncrossed, self.valid),
            "two_or_less_crossing": percent(self.crossed_twice, self.valid),
            "tagging_accuracy": self.tagging,
            "matched": self.matched,
            "gold_brackets": self.gold,
            "test_brackets": self.test,
            "crossing": self.crossing,
            "words": self.words,
            "correct_tags": self.tags,
        }


def percent(part: int, total: int) -> float:
    """Return part / whole in percent; 0 if `total` is 0."""
    return 100.0 * part / total if total else 0.0


@dataclass(frozen=True, slots=True)
class EvalbScores:
    """Scores of all parses."""

    sentences: tuple[SentenceScore, ...]
    cutoff: int

    @property
    def all(self) -> EvalbSummary:
        """Return the scores over sentences of every length, which are the ones to report."""
        return summed(self.sentences)

    @property
    def short(self) -> EvalbSummary:
        """Return the scores over sentences up to the cutoff length."""
        return summed(sentence for sentence in self.sentences if sentence.length <= self.cutoff)


def summed(sentences: Iterable[SentenceScore]) -> EvalbSummary:
    """Sum up the valid sentences and count the others."""
    all_ = list(sentences)
    valid = [sentence for sentence in all_ if sentence.status == "valid"]
    return EvalbSummary(
        sentences=len(all_),
        errors=sum(sentence.status == "error" for sentence in all_),
        skipped=sum(sentence.status == "skip" for sentence in all_),
        matched=sum(sentence.matched for sentence in valid),
        gold=sum(sentence.gold for sentence in valid),
        test=sum(sentence.test for sentence in valid),
        crossing=sum(sentence.crossing for sentence in valid),
        words=sum(sentence.words for sentence in valid),
        tags=sum(sentence.tags for sentence in valid),
        complete=sum(sentence.complete for sentence in valid),
        uncrossed=sum(sentence.crossing == 0 for sentence in valid),
        crossed_twice=sum(sentence.crossing <= _FEW for sentence in valid),
    )


def score(
    gold: Iterable[str], test: Iterable[str], settings: EvalbSettings = COLLINS
) -> EvalbScores:
    """Compare parses with gold, line by line.

    Args:
        gold: one bracketed sentence per line.
        test: parses in the same order; an empty line stands for a missing parse.
        settings: EVALB settings.

    Raises:
        ValueError: the numbers of lines differ.
    """
    pairs = zip(gold, test, strict=True)
    sentences = tuple(_compare(n, g, t, settings) for n, (g, t) in enumerate(pairs, 1))
    return EvalbScores(sentences, settings.cutoff)


@dataclass(slots=True)
class _Quote:
    """A quotation mark whose tag is in `quote_label`."""

    position: int
    """Position among all leaves."""
    index: int
    """Number of words before it, as the program counts them."""


@dataclass(slots=True)
class _Side:
    """One side of a comparison."""

    leaves: list[Leaf] = field(default_factory=list)
    spans: list[_Bracket] = field(default_factory=list)
    """Constituents over all leaves, including deleted ones, parents before children."""
    counts: list[int] = field(default_factory=list)
    """How often each leaf counts as a word: 0 if it is deleted."""
    quotes: list[_Quote] = field(default_factory=list)

    @classmethod
    def of(cls, line: str, settings: EvalbSettings) -> _Side:
        """Parse a line.

        Raises:
            ValueError: the line is malformed.
        """
        side = cls()
        for part in read_line(line):
            side._add(part)
        for position, leaf in enumerate(side.leaves):
            if leaf.tag in settings.quote_label and leaf.word in _QUOTES:
                side.quotes.append(_Quote(position, sum(side.counts)))
            side.counts.append(leaf.tag not in settings.delete_label)
        return side

    def _add(self, part: Tree | Leaf) -> None:
        if isinstance(part, Leaf):
            self.leaves.append(part)
            return
        begin, position = len(self.leaves), len(self.spans)
        self.spans.append((begin, begin, part.label))
        for child in part.children:
            self._add(child)
        self.spans[position] = (begin, len(self.leaves), part.label)

    def tag(self, quote: _Quote) -> str:
        """Return the tag of a quotation mark."""
        return self.leaves[quote.position].tag

    def restore(self, number: int) -> None:
        """Count a quotation mark as a word, and shift it and those after it."""
        self.counts[self.quotes[number].position] += 1
        for quote in self.quotes[number:]:
            quote.index += 1

    def words(self) -> list[Leaf]:
        """Return the leaves that count as words."""
        counted = zip(self.leaves, self.counts, strict=True)
        return [leaf for leaf, count in counted for _ in range(count)]

    def brackets(self, settings: EvalbSettings) -> list[_Bracket]:
        """Return the brackets over words, with cut labels, without deleted ones."""
        before = [0, *accumulate(self.counts)]
        return [
            (before[start], before[end], cut(label))
            for start, end, label in self.spans
            if before[start] < before[end]
            and not any(
                _equal(cut(label), deleted, settings.eq_label) for deleted in settings.delete_label
            )
        ]


def cut(label: str) -> str:
    """Return a label up to its first `-` or `=`.

    >>> cut("NP-SBJ-1"), cut("NP=2")
    ('NP', 'NP')
    """
    return label.partition("-")[0].partition("=")[0]


def _equal(label: str, other: str, pairs: frozenset[Pair]) -> bool:
    return label == other or (label, other) in pairs or (other, label) in pairs


def _compare(number: int, gold_line: str, test_line: str, settings: EvalbSettings) -> SentenceScore:
    """Compare one parse with gold."""
    gold = _Side.of(gold_line, settings)
    length = sum(leaf.tag not in settings.delete_label_for_length for leaf in gold.leaves)

    def rejected(status: Status, problem: str) -> SentenceScore:
        return SentenceScore(number, length, status, problem)

    try:
        test = _Side.of(test_line, settings)
    except ValueError as bad:
        return rejected("error", str(bad))
    if not test.words():
        return rejected("skip", "no words")
    if len(gold.words()) != len(test.words()):
        _restore_quotes(gold, test, settings)
    gold_words, test_words = gold.words(), test.words()
    if len(gold_words) != len(test_words):
        return rejected("error", f"{len(test_words)} words instead of {len(gold_words)}")
    for gold_leaf, test_leaf in zip(gold_words, test_words, strict=True):
        if not _equal(gold_leaf.word, test_leaf.word, settings.eq_word):
            return rejected("error", f"'{test_leaf.word}' instead of '{gold_leaf.word}'")
    gold_brackets, test_brackets = gold.brackets(settings), test.brackets(settings)
    return SentenceScore(
        number,
        length,
        "valid",
        matched=_matched(gold_brackets, test_brackets, settings),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=sum(any(_cross(g, t) for g in gold_brackets) for t in test_brackets),
        words=len(gold_words),
        tags=sum(
            _equal(gold_leaf.tag, test_leaf.tag, settings.eq_label)
            for gold_leaf, test_leaf in zip(gold_words, test_words, strict=True)
        ),
    )


def _restore_quotes(gold: _Side, test: _Side, settings: EvalbSettings) -> None:
    """Restore quotation marks that only one side deletes, where as many words precede both.

    The order of the comparisons, and that a mark may be restored more than once, are those of the
    program; both change scores.
    """
    for number, quote in enumerate(test.quotes):
        index, tag = quote.index, test.tag(quote)
        for gold_number, gold_quote in enumerate(gold.quotes):
            gold_tag = gold.tag(gold_quote)
            if gold_quote.index != index or gold_tag == tag:
                continue
            if gold_tag in settings.delete_label and tag not in settings.delete_label:
                gold.restore(gold_number)
            elif tag in settings.delete_label and gold_tag not in settings.delete_label:
                test.restore(number)


def _matched(gold: Sequence[_Bracket], test: Sequence[_Bracket], settings: EvalbSettings) -> int:
    """Return the number of brackets that are paired one to one.

    A bracket of gold gets the first equal one of the parse.  Equality of labels is not transitive,
    so the order matters where a label equals two labels that differ from each other.
    """
    unpaired: dict[tuple[int, int], list[str]] = {}
    for start, end, label in test:
        unpaired.setdefault((start, end), []).append(label)
    matched = 0
    for start, end, label in gold:
        labels = unpaired.get((start, end), [])
        for index, other in enumerate(labels):
            if not settings.labelled or _equal(label, other, settings.eq_label):
                del labels[index]
                matched += 1
                break
    return matched


def _cross(bracket: _Bracket, other: _Bracket) -> bool:
    """Return whether two brackets overlap without nesting."""
    first, second = sorted((bracket[:2], other[:2]))
    return first[0] < second[0] < first[1] < second[1]
