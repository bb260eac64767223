"""Walk: the records of a spec that selections match, without a walk over every path.

A template may be used in several places, and a selection may match only some of them.  The walk
therefore creates a separate `Version` of a template for each set of selections that can continue
from it.  It visits each version once, so the cost is proportional to the size of the spec times
the number of selections, and does not depend on the number of paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..expressions import is_expression
from ..form import MOST_COPIES, by_number, is_number, number_of_copies
from .selections import Kind, Segment, Selection

DEEPEST = 32
"""Maximum nesting of templates that selections enter; the checker rejects deeper specs."""
MOST_STEPS = 1_000_000
"""Maximum total number of comparisons between path segments and selections."""
_VISIT = 3
"""Number of comparisons that visiting one node counts as, besides those made there."""
_MOST_CANDIDATES = 500
"""Maximum number of candidate paths stored for a selection that may be empty."""

Site = tuple[str, ...]
"""Keys from a scope's record to a node or to a block in a slot; `()` is the scope."""
State = tuple[tuple[int, int], ...]
"""Selections that can continue from here, each with its positions as a bit mask."""

Piece = tuple[int, int | None]
"""First and last index of consecutive copies; None if the number of copies is unknown."""


class TooMuchError(Exception):
    """The selections of a file need too many comparisons."""


@dataclass(slots=True)
class Version:
    """A scope as it is reached through some of its uses."""

    scope: str
    """The template; `""` is the spec itself."""
    label: str
    """Label of the use that reached it first."""
    path: str
    """Path through which it was first reached; the prefix of its nodes' paths."""
    chosen: dict[int, list[Site]] = field(default_factory=dict)
    """Selection index to the sites that the selection matches here."""
    runs: dict[str, list[CopyRun]] = field(default_factory=dict)
    """Node to the versions of its templates."""


@dataclass(frozen=True, slots=True)
class CopyRun:
    """Consecutive copies that no selection distinguishes; a plain use has a single run."""

    low: int
    high: int | None
    """The last copy; None if the number of copies is unknown."""
    template: str
    version: Version | None
    """None if the template is unknown or nested too deeply."""
    key: str = ""
    """The slice of `instead` that selects the copies, if the number of copies is unknown."""


@dataclass(slots=True)
class Found:
    """The result of one selection."""

    paths: dict[tuple[str, Site], str] = field(default_factory=dict)
    """Scope and site of each match to the first path that reaches it."""
    near: dict[tuple[str, Site], str] = field(default_factory=dict)
    """The same for records that match the path but not the predicates."""
    misplaced: list[str] = field(default_factory=list)
    """Reasons why a copy index is invalid."""
    furthest: int = 0
    """Number of segments that matched."""
    candidates: list[str] = field(default_factory=list)
    """Paths at which the next segment was compared, as suggestions."""


def is_repeat(node: Mapping[str, Any]) -> bool:
    """Return whether a node, as written, is a repeat."""
    return "repeat" in node or ("block" in node and "use" not in node)


def templates_of(node: Mapping[str, Any]) -> list[str]:
    """Return the names of templates that a node uses; some may be names of blocks."""
    if is_repeat(node):
        return [node.get("block", ""), *node.get("instead", {}).values()]
    return [node.get("use", "")]


def bottom_up(blocks: Mapping[str, Any]) -> list[str]:
    """Return the templates that can be entered, each after the templates that it uses.

    Templates that contain themselves or are nested too deeply are omitted.
    """
    uses = {
        name: {t for node in block["nodes"].values() for t in templates_of(node) if t in blocks}
        for name, block in blocks.items()
    }
    users: dict[str, list[str]] = {name: [] for name in blocks}
    for name, used in uses.items():
        for other in used:
            users[other].append(name)
    pending = {name: len(used) for name, used in uses.items()}
    depth = {name: 1 for name in blocks if not pending[name]}
    order = sorted(depth)
    for name in order:
        for user in sorted(users[name]):
            pending[user] -= 1
            depth[user] = max(depth.get(user, 0), depth[name] + 1)
            if not pending[user]:
                order.append(user)
    return [name for name in order if depth[name] <= DEEPEST]


def _used_elsewhere(spec: Mapping[str, Any]) -> set[str]:
    """Return names used where selections do not enter: in slots and in block choices."""
    templates = spec.get("blocks", {}).values()
    names: list[Any] = [
        *_chosen(spec.get("params")),
        *(n for t in templates for n in _chosen(t.get("params"))),
    ]
    scopes = [spec["nodes"], *(block["nodes"] for block in templates)]
    waiting = [node for nodes in scopes for node in nodes.values()]
    while waiting:
        use = waiting.pop()
        inner = use.get("fill", {}).values()
        names += [*_chosen(use.get("params")), *(filling.get("use") for filling in inner)]
        waiting += inner
    return {name for name in names if isinstance(name, str)}


def _chosen(value: Any) -> Iterator[str]:
    """Yield the blocks and templates that the values of params choose."""
    for _, inner in value.items() if isinstance(value, dict) else enumerate(value or ()):
        if isinstance(inner, dict):
            yield str(inner.get("use", ""))
        if isinstance(inner, dict | list):
            yield from _chosen(inner)


class Walk:
    """Follows every selection of a file through a spec."""

    def __init__(self, spec: Mapping[str, Any], selections: Sequence[Selection]) -> None:
        """Walk the spec.

        Raises:
            TooMuchError: the selections need too many comparisons.
        """
        self.spec, self.blocks, self.selections = spec, spec.get("blocks", {}), selections
        self.matches = [Found() for _ in selections]
        self.paths: dict[tuple[str, Site], str] = {}
        """Every site to the first path that reaches it."""
        self.order = bottom_up(self.blocks)
        """Templates that the walk enters, each after the templates that it uses."""
        self._open = frozenset(self.order)
        self._versions: dict[tuple[str, State], Version] = {}
        self._by_scope: dict[str, list[Version]] = {}
        self._direct = [(i, s) for i, s in enumerate(selections) if s.target != "nodes"]
        self._steps = 0
        start = tuple(
            (i, self._closed(i, 1)) for i, s in enumerate(selections) if s.target == "nodes"
        )
        self._enter("", start, "", "")
        elsewhere = _used_elsewhere(spec)
        for name in self.order:
            if name in elsewhere or not self.versions(name):
                self._enter(name, (), f"{name}: ", name)

    def versions(self, scope: str) -> list[Version]:
        """Return the versions of a scope, in the order in which they were reached."""
        return self._by_scope.get(scope, [])

    def record(self, scope: str, site: Site) -> Any:
        """Return the record at a site, as written."""
        record: Any = self.blocks[scope] if scope else self.spec
        for key in site:
            record = record[key]
        return record

    def _enter(self, scope: str, state: State, path: str, label: str) -> Version:
        cached = self._versions.get((scope, state))
        if cached is not None:
            return cached
        version = self._versions[scope, state] = Version(scope, label, path)
        self._by_scope.setdefault(scope, []).append(version)
        record = self.blocks[scope] if scope else self.spec
        for index, selection in self._direct:
            self._steps += 1
            if (
                scope and selection.segments and selection.segments[0].fits("name", scope, 0)
            ) or not (scope or selection.segments):
                self._choose(version, index, (), record, f"/blocks/{scope}" if scope else "/")
        for name in sorted(record["nodes"]):
            node, node_path = record["nodes"][name], path + name
            self._pass_by(state, node_path)
            after = self._step(state, "name", name)
            self._meet(version, ("nodes", name), node, after, node_path)
            version.runs[name] = list(self._runs(name, node, after, node_path))
        return version

    def _meet(
        self, version: Version, site: Site, record: Mapping[str, Any], state: State, path: str
    ) -> None:
        """Match the selections against a node or a block in a slot, and against its own slots."""
        self.paths.setdefault((version.scope, site), path)
        for index, mask in state:
            if mask >> len(self.selections[index].segments) & 1:
                self._choose(version, index, site, record, path)
        for slot, inner in sorted(record.get("fill", {}).items()):
            self._pass_by(state, f"{path}/{slot}")
            after = self._step(state, "slot", slot)
            self._meet(version, (*site, "fill", slot), inner, after, f"{path}/{slot}")

    def _pass_by(self, state: State, path: str) -> None:
        """Store the paths at which a selection got furthest, to suggest them if it is empty."""
        for index, mask in state:
            match, reached = self.matches[index], mask.bit_length()
            if reached > match.furthest:
                match.furthest, match.candidates = reached, []
            if reached == match.furthest and len(match.candidates) < _MOST_CANDIDATES:
                match.candidates.append(path)

    def _choose(
        self, version: Version, index: int, site: Site, record: Mapping[str, Any], path: str
    ) -> None:
        match = self.matches[index]
        if self.selections[index].holds(record):
            version.chosen.setdefault(index, []).append(site)
            match.paths.setdefault((version.scope, site), path)
        else:
            match.near.setdefault((version.scope, site), path)

    def _runs(
        self, name: str, node: Mapping[str, Any], state: State, path: str
    ) -> Iterator[CopyRun]:
        """Yield the runs of a node's templates, starting with those of the most copies."""
        if not is_repeat(node):
            used = node.get("use")  # a node that shares a module has none
            if used in self._open:
                yield CopyRun(0, None, used, self._enter(used, state, f"{path}.", name))
            return
        shared = node.get("share") is True
        count = None if shared else number_of_copies(node["repeat"])
        self._check_indices(state, path, count, shared=shared)
        if shared:
            yield self._run(0, None, node["block"], state, f"{path}.", name)
            return
        if count is None and (steps := self._slices(state)):
            yield from self._sliced(name, node, state, path, steps)
            return
        written = node.get("instead", {})
        rules = {
            key: used
            for key, used in written.items()
            if is_expression(key) or not (count or is_number(key))
        }
        if rules:
            self._refuse_indices(state, path, count)
        instead = by_number({k: used for k, used in written.items() if k not in rules}, count or 0)
        cuts = {0, *instead, *(i + 1 for i in instead), *self._cuts(state, count)}
        alike: dict[tuple[str, State], list[Piece]] = {}
        for piece in _pieces(cuts, count):
            after = self._step(state, "index", str(piece[0]), piece[0])
            alike.setdefault((instead.get(piece[0], node["block"]), after), []).append(piece)
        groups = sorted(alike.items(), key=lambda item: _rank(item[0][1], item[1]))
        for index, ((used, after), pieces) in enumerate(groups):
            for low, high in pieces:
                label = f"{low}" if high == low else f"{low}_{high}"
                mark = label.replace("_", "-")
                if not index:
                    label, mark = name, mark if low in instead else "*"
                yield self._run(low, high, used, after, f"{path}.{mark}.", label)

        for key, used in rules.items():
            after = self._step(state, "index", "0")
            yield replace(self._run(0, None, used, after, f"{path}.*.", name), key=key)

    def _sliced(
        self,
        name: str,
        node: Mapping[str, Any],
        state: State,
        path: str,
        steps: Sequence[Segment],
    ) -> Iterator[CopyRun]:
        """Yield the copies that a slice does not select, and those that it does.

        The number of copies is not known, so that the slice becomes a key of `instead`.
        """
        segment, written = steps[0], node.get("instead", {})
        others = {s.text for s in self._indices(state)} | written.keys()
        for which, mask in state if others != {segment.text} else ():
            why = (
                f"'repeat' of '{path}' must be a number to select copies by '{segment.text}' and"
                " by others"
            )
            if mask and why not in self.matches[which].misplaced:
                self.matches[which].misplaced.append(why)
        unselected = segment.low - 1 if segment.low else segment.low + 1
        after = self._step(state, "index", str(unselected), unselected)
        yield self._run(0, None, node["block"], after, f"{path}.*.", name)
        after = self._step(state, "index", str(segment.low), segment.low)
        used, label = written.get(segment.text, node["block"]), f"{segment.low}_by_{segment.step}"
        run = self._run(0, None, used, after, f"{path}.{segment.text}.", label)
        yield replace(run, key=segment.text)

    def _run(
        self, low: int, high: int | None, used: str, state: State, path: str, label: str
    ) -> CopyRun:
        version = self._enter(used, state, path, label) if used in self._open else None
        return CopyRun(low, high, used, version)

    def _step(self, state: State, kind: Kind, word: str, index: int = 0) -> State:
        """Return the state after one more segment of a path."""
        after = []
        for which, mask in state:
            segments = self.selections[which].segments
            reached, waiting = 0, mask & ~(1 << len(segments))
            while waiting:
                bit = waiting & -waiting
                waiting ^= bit
                segment = segments[bit.bit_length() - 1]
                if segment.kind == "any":
                    reached |= bit
                elif segment.fits(kind, word, index):
                    reached |= bit << 1
                self._steps += 1
            if reached:
                after.append((which, self._closed(which, reached)))
        self._steps += _VISIT
        if self._steps > MOST_STEPS:
            raise TooMuchError
        return tuple(after)

    def _closed(self, which: int, mask: int) -> int:
        """Extend a mask past each `**`, which also matches no segments."""
        for position, segment in enumerate(self.selections[which].segments):
            if segment.kind == "any" and mask >> position & 1:
                mask |= 2 << position
        return mask

    def _indices(self, state: State, *, strict: bool = False) -> Iterator[Segment]:
        """Yield the next segments with copies; with `strict`, only those without `**` before."""
        for which, mask in state:
            segments = self.selections[which].segments
            for position, segment in enumerate(segments):
                loose = strict and segments[position - 1].kind == "any"
                if segment.kind == "index" and mask >> position & 1 and not loose:
                    yield segment

    def _slices(self, state: State) -> list[Segment]:
        """Return the next segments that select copies in steps, or up to the last."""
        segments = self._indices(state)
        return [s for s in segments if s.step > 1 or (s.high is None and s.low > 0)]

    def _cuts(self, state: State, count: int | None) -> set[int]:
        """Return the copies at which the selected ones begin, and those that follow them."""
        cuts = set[int]()
        for segment in self._indices(state):
            if segment.step == 1:
                cuts |= {segment.low} if segment.high is None else {segment.low, segment.high + 1}
                continue
            end = min(
                count or 0, segment.low + MOST_COPIES if segment.high is None else segment.high + 1
            )
            for copy in range(segment.low, end, segment.step):
                cuts |= {copy, copy + 1}
                self._steps += 1
        return cuts

    def _misplace(self, state: State, why: Callable[[Segment], str | None]) -> None:
        """Record why copies that selections name cannot be selected."""
        for which, mask in state:
            for segment in self._indices(((which, mask),), strict=True):
                reason = why(segment)
                if reason and reason not in self.matches[which].misplaced:
                    self.matches[which].misplaced.append(reason)

    def _check_indices(self, state: State, path: str, count: int | None, *, shared: bool) -> None:
        """Record copy indices that do not exist in a repeat."""

        def why(segment: Segment) -> str | None:
            if shared:
                return (
                    f"the copies of '{path}' share their weights, so they cannot be selected singly"
                )
            last = segment.low if ":" in segment.text else segment.high or 0
            if count is not None and last >= count:
                return f"'{path}' has {count} copies, so copy {last} does not exist"
            return None

        self._misplace(state, why)

    def _refuse_indices(self, state: State, path: str, count: int | None) -> None:
        """Record copy indices in a repeat with slices of an unknown number, or with rules."""
        before = f"'instead' of '{path}' has "
        why = (
            "slices, so 'repeat' must be a number to select copy "
            if count is None
            else ("rules, so its copies cannot be selected singly: copy ")
        )
        self._misplace(state, lambda segment: f"{before}{why}{segment.text.rpartition('-')[2]}")


def _pieces(cuts: set[int], count: int | None) -> list[Piece]:
    """Return the intervals between cuts as first and last index; the last may be open."""
    starts = sorted(cut for cut in cuts if count is None or cut < count)
    ends: list[int | None] = [start - 1 for start in starts[1:]]
    return list(zip(starts, [*ends, None if count is None else count - 1], strict=True))


def _rank(state: State, pieces: list[Piece]) -> tuple[float, int, Piece]:
    """Return the sort key of a group of copies: most copies first, then fewest selections."""
    copies = sum(float("inf") if high is None else high - low + 1 for low, high in pieces)
    return -copies, sum(mask.bit_count() for _, mask in state), pieces[0]
