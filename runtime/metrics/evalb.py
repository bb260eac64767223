"""EVALB: labeled bracket scores of parses against gold trees, as computed by the program.

A bracket is (start, end, label) over the kept words.  Words with a deleted tag are removed
before brackets are indexed, and so are brackets over no word.  Totals are sums over the
corpus.

Source: Sekine & Collins 1997, EVALB; Black et al. 1991 (PARSEVAL); Collins 1997, whose
settings are the default.

`evalb_report.py` writes the report in the layout of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...specs.findings import InputError, nearest
from ..data.treebank.trees import Leaf, Tree, read_line

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
    """Tags of quotation marks; a mark that only one side deletes is kept on both sides."""
    cutoff: int = 40
    """Maximum length of the sentences in the second summary."""
    labelled: bool = True
    """Whether the labels of brackets must agree."""


COLLINS = EvalbSettings()
_FEW = 2
"""Maximum crossing brackets of the sentences in "2 or less crossing"."""
_SETS = ("DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL")
_PAIRS = ("EQ_LABEL", "EQ_WORD")
_NUMBERS = ("CUTOFF_LEN", "LABELED")
_IGNORED = ("DEBUG", "MAX_ERROR")
"""Settings of the program's output and error limit, which do not affect the scores."""


def read_settings(text: str, place: str) -> EvalbSettings:
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
        key, values, at = words[0], words[1:], f"{place}:{number}"
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
                raise InputError(msg, place=at, help="give a non-negative integer")
            numbers[key] = int(values[0])
        elif key not in _IGNORED:
            known = nearest(key, [*_SETS, *_PAIRS, *_NUMBERS, *_IGNORED])
            raise InputError(
                f"unknown setting '{key}'",
                place=at,
                help=f"did you mean {known or 'DELETE_LABEL'}?",
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
            place=at,
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
class Summary:
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
        both = self.recall + self.precision
        return 2 * self.recall * self.precision / both if both else 0.0

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


def percent(part: int, whole: int) -> float:
    """Return part / whole in percent; 0 if `whole` is 0."""
    return 100.0 * part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of all parses."""

    sentences: tuple[SentenceScore, ...]
    cutoff: int

    @property
    def all(self) -> Summary:
        """Return the scores over sentences of every length, which are the ones to report."""
        return summed(self.sentences)

    @property
    def short(self) -> Summary:
        """Return the scores over sentences up to the cutoff length."""
        return summed(one for one in self.sentences if one.length <= self.cutoff)


def summed(sentences: Iterable[SentenceScore]) -> Summary:
    """Sum up the valid sentences and count the others."""
    all_ = list(sentences)
    valid = [one for one in all_ if one.status == "valid"]
    return Summary(
        sentences=len(all_),
        errors=sum(one.status == "error" for one in all_),
        skipped=sum(one.status == "skip" for one in all_),
        matched=sum(one.matched for one in valid),
        gold=sum(one.gold for one in valid),
        test=sum(one.test for one in valid),
        crossing=sum(one.crossing for one in valid),
        words=sum(one.words for one in valid),
        tags=sum(one.tags for one in valid),
        complete=sum(one.complete for one in valid),
        uncrossed=sum(one.crossing == 0 for one in valid),
        crossed_twice=sum(one.crossing <= _FEW for one in valid),
    )


def score(gold: Iterable[str], test: Iterable[str], settings: EvalbSettings = COLLINS) -> Scores:
    """Compare parses with gold, line by line.

    Args:
        gold: one bracketed sentence per line.
        test: parses in the same order; an empty line stands for a missing parse.
        settings: EVALB settings.

    Raises:
        ValueError: the numbers of lines differ.
    """
    pairs = zip(gold, test, strict=True)
    found = tuple(_compare(n, g, t, settings) for n, (g, t) in enumerate(pairs, 1))
    return Scores(found, settings.cutoff)


@dataclass(slots=True)
class _Side:
    """One side of a comparison."""

    leaves: list[Leaf]
    spans: list[_Bracket]
    """Constituents over all leaves, including dropped ones."""
    kept: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, line: str) -> _Side:
        """Parse a line."""
        side = cls([], [])
        for part in read_line(line):
            side._add(part)
        return side

    def _add(self, part: Tree | Leaf) -> None:
        if isinstance(part, Leaf):
            self.leaves.append(part)
            return
        begin, place = len(self.leaves), len(self.spans)
        self.spans.append((begin, begin, part.label))
        for child in part.children:
            self._add(child)
        self.spans[place] = (begin, len(self.leaves), part.label)

    def words(self) -> list[Leaf]:
        """Return the kept leaves."""
        return [leaf for leaf, kept in zip(self.leaves, self.kept, strict=True) if kept]

    def brackets(self, settings: EvalbSettings) -> list[_Bracket]:
        """Return the non-empty brackets over kept words, without deleted and with cut labels."""
        before = [0]
        for kept in self.kept:
            before.append(before[-1] + kept)
        return [
            (before[start], before[end], cut(label))
            for start, end, label in self.spans
            if before[start] < before[end] and label not in settings.delete_label
        ]


def cut(label: str) -> str:
    """Return a label up to its first `-` or `=`.

    >>> cut("NP-SBJ-1"), cut("NP=2")
    ('NP', 'NP')
    """
    return label.partition("-")[0].partition("=")[0]


def _equal(one: str, other: str, pairs: frozenset[Pair]) -> bool:
    return one == other or (one, other) in pairs or (other, one) in pairs


def _compare(number: int, gold_line: str, test_line: str, settings: EvalbSettings) -> SentenceScore:
    """Compare one parse with gold."""
    gold = _Side.of(gold_line)
    length = sum(leaf.tag not in settings.delete_label_for_length for leaf in gold.leaves)

    def rejected(status: Status, problem: str) -> SentenceScore:
        return SentenceScore(number, length, status, problem)

    try:
        test = _Side.of(test_line)
    except ValueError as bad:
        return rejected("error", str(bad))
    for side in (gold, test):
        side.kept = [leaf.tag not in settings.delete_label for leaf in side.leaves]
    _restore_quotes(gold, test, settings)
    gold_words, test_words = gold.words(), test.words()
    if not gold_words or not test_words:
        return rejected("skip", "no words")
    if len(gold_words) != len(test_words):
        return rejected("error", f"{len(test_words)} words instead of {len(gold_words)}")
    for gold_leaf, test_leaf in zip(gold_words, test_words, strict=True):
        if not _equal(gold_leaf.word, test_leaf.word, settings.eq_word):
            return rejected("error", f"'{test_leaf.word}' instead of '{gold_leaf.word}'")
    wanted, given = gold.brackets(settings), test.brackets(settings)
    return SentenceScore(
        number,
        length,
        "valid",
        matched=_matched(wanted, given, settings),
        gold=len(wanted),
        test=len(given),
        crossing=sum(any(_cross(g, t) for g in wanted) for t in given),
        words=len(gold_words),
        tags=sum(
            _equal(gold_leaf.tag, test_leaf.tag, settings.eq_label)
            for gold_leaf, test_leaf in zip(gold_words, test_words, strict=True)
        ),
    )


def _restore_quotes(gold: _Side, test: _Side, settings: EvalbSettings) -> None:
    """Keep quotation marks that only one side deletes."""
    if not settings.quote_label or len(gold.leaves) != len(test.leaves):
        return
    for place, (gold_leaf, test_leaf) in enumerate(zip(gold.leaves, test.leaves, strict=True)):
        if {gold_leaf.tag, test_leaf.tag} <= settings.quote_label and (
            gold.kept[place] != test.kept[place]
        ):
            gold.kept[place] = test.kept[place] = True


def _matched(wanted: Sequence[_Bracket], given: Sequence[_Bracket], settings: EvalbSettings) -> int:
    """Return the number of brackets that can be paired one to one.

    Labels that `eq_label` declares equal are merged into classes.  This agrees with the
    program's greedy pairing unless a label equals two labels that differ from each other.
    """
    names: dict[str, str] = {}
    for one, other in sorted(settings.eq_label):
        root = names.get(one, one)
        old = names.get(other, other)
        names[one] = root
        for label in [*[n for n, r in names.items() if r == old], other]:
            names[label] = root

    def key(bracket: _Bracket) -> _Bracket:
        start, end, label = bracket
        return start, end, names.get(label, label) if settings.labelled else ""

    return (Counter(map(key, wanted)) & Counter(map(key, given))).total()


def _cross(one: _Bracket, other: _Bracket) -> bool:
    """Return whether two brackets overlap without nesting."""
    first, second = sorted((one[:2], other[:2]))
    return first[0] < second[0] < first[1] < second[1]
