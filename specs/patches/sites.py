"""Sites: the records of an unexpanded spec that selections name, and how uses reach them.

A template may be used in several places, of which a selection may reach some only.
So the walk keeps a template apart for each way in which selections can go on from
there: a `Version`.  Each is visited once, so the cost is that of the spec times the
selections, however many paths lead through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .select import Kind, Selection

DEEPEST = 32
"""Templates inside one another that selections enter; deeper specs are refused anyway."""
MOST_STEPS = 1_000_000
"""Comparisons of a piece of a path with a selection, in all."""
_VISIT = 3
"""Comparisons for which going to one node counts, besides those that are made there."""
_MOST_BESIDE = 500
"""Paths that are kept for a selection that may miss."""

Site = tuple[str, ...]
"""Keys from a scope's record to a node, or to what stands in a slot; `()` is the scope."""
State = tuple[tuple[int, int], ...]
"""Selections that may go on from here, each with its positions as bits."""

Piece = tuple[int, int | None]
"""First and last of some copies in a row; None where their number is not known."""


class TooMuchError(Exception):
    """The selections of a file would take too long to follow."""


@dataclass(slots=True)
class Version:
    """A scope, as some of its uses reach it."""

    scope: str
    """The template; `""` is the spec itself."""
    label: str
    """A word for the use that reached it first."""
    path: str
    """The path through which it was first reached, up to its nodes."""
    chosen: dict[int, list[Site]] = field(default_factory=dict)
    """What each selection names in it, by the selection's index."""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    """Node to the versions of its templates."""


@dataclass(frozen=True, slots=True)
class Run:
    """Copies in a row that selections do not tell apart; any other use is one of them."""

    low: int
    high: int | None
    """The last copy; None where the number of copies is not known."""
    template: str
    version: Version | None
    """None where the template is unknown, or lies too deep."""


@dataclass(slots=True)
class Found:
    """What one selection names."""

    paths: dict[tuple[str, Site], str] = field(default_factory=dict)
    """Scope and site to the first path that leads there."""
    near: dict[tuple[str, Site], str] = field(default_factory=dict)
    """The same for those that have the path but not what the brackets want."""
    misplaced: list[str] = field(default_factory=list)
    """Why a number of a copy means none."""
    furthest: int = 0
    """How many of its pieces found something."""
    beside: list[str] = field(default_factory=list)
    """Paths that stand where the next piece found nothing, or something else."""


def is_repeat(node: Mapping[str, Any]) -> bool:
    """Say whether a written node is a repeat."""
    return "repeat" in node or ("block" in node and "use" not in node)


def templates_of(node: Mapping[str, Any]) -> list[str]:
    """Return the names of templates that a written node uses; a block's name may be among them."""
    if is_repeat(node):
        return [node.get("block", ""), *node.get("instead", {}).values()]
    return [node.get("use", "")]


def bottom_up(blocks: Mapping[str, Any]) -> list[str]:
    """Return the templates that can be entered, each after those that it uses.

    Templates that contain themselves, or stand too deep, are left out.
    """
    uses = {
        name: {t for node in block["nodes"].values() for t in templates_of(node) if t in blocks}
        for name, block in blocks.items()
    }
    users: dict[str, list[str]] = {name: [] for name in blocks}
    for name, used in uses.items():
        for other in used:
            users[other].append(name)
    left = {name: len(used) for name, used in uses.items()}
    depth = {name: 1 for name in blocks if not left[name]}
    order = sorted(depth)
    for name in order:
        for user in sorted(users[name]):
            left[user] -= 1
            depth[user] = max(depth.get(user, 0), depth[name] + 1)
            if not left[user]:
                order.append(user)
    return [name for name in order if depth[name] <= DEEPEST]


def _used_apart(spec: Mapping[str, Any]) -> set[str]:
    """Return what is used where no selection leads: in slots, and as the choice of a param."""
    choices = spec.get("params", {}).values()
    found = [choice.get("use") for choice in choices if isinstance(choice, dict)]
    scopes = [spec["nodes"], *(block["nodes"] for block in spec.get("blocks", {}).values())]
    waiting = [node for nodes in scopes for node in nodes.values()]
    while waiting:
        inner = waiting.pop().get("fill", {}).values()
        found += [use.get("use") for use in inner]
        waiting += inner
    return {name for name in found if isinstance(name, str)}


class Walk:
    """Follows every selection of a file through a spec."""

    def __init__(self, spec: Mapping[str, Any], selections: Sequence[Selection]) -> None:
        """Walk the whole spec.

        Raises:
            TooMuchError: the selections would take too long to follow.
        """
        self.spec, self.blocks, self.selections = spec, spec.get("blocks", {}), selections
        self.found = [Found() for _ in selections]
        self.paths: dict[tuple[str, Site], str] = {}
        """Every site to the first path that leads there."""
        self.order = bottom_up(self.blocks)
        """Templates that are entered, each after those that it uses."""
        self._open = frozenset(self.order)
        self._versions: dict[tuple[str, State], Version] = {}
        self._by_scope: dict[str, list[Version]] = {}
        self._whole = [(i, s) for i, s in enumerate(selections) if s.target != "nodes"]
        self._steps = 0
        start = tuple(
            (i, self._closed(i, 1)) for i, s in enumerate(selections) if s.target == "nodes"
        )
        self._enter("", start, "", "")
        apart = _used_apart(spec)
        for name in self.order:
            if name in apart or not self.versions(name):
                self._enter(name, (), f"{name}: ", name)

    def versions(self, scope: str) -> list[Version]:
        """Return the versions of a scope, in the order in which they were reached."""
        return self._by_scope.get(scope, [])

    def record(self, scope: str, site: Site) -> Any:
        """Return what was written at a site."""
        record: Any = self.blocks[scope] if scope else self.spec
        for key in site:
            record = record[key]
        return record

    def _enter(self, scope: str, state: State, path: str, label: str) -> Version:
        known = self._versions.get((scope, state))
        if known is not None:
            return known
        version = self._versions[scope, state] = Version(scope, label, path)
        self._by_scope.setdefault(scope, []).append(version)
        record = self.blocks[scope] if scope else self.spec
        for index, selection in self._whole:
            self._steps += 1
            if (
                scope and selection.segments and selection.segments[0].fits("name", scope, 0)
            ) or not (scope or selection.segments):
                self._choose(version, index, (), record, f"/blocks/{scope}" if scope else "/")
        for name in sorted(record["nodes"]):
            node, here = record["nodes"][name], path + name
            self._pass_by(state, here)
            after = self._step(state, "name", name)
            self._meet(version, ("nodes", name), node, after, here)
            version.runs[name] = list(self._runs(name, node, after, here))
        return version

    def _meet(
        self, version: Version, site: Site, record: Mapping[str, Any], state: State, path: str
    ) -> None:
        """Look at a node or at what stands in a slot, and at the slots inside."""
        self.paths.setdefault((version.scope, site), path)
        for index, mask in state:
            if mask >> len(self.selections[index].segments) & 1:
                self._choose(version, index, site, record, path)
        for slot, inner in sorted(record.get("fill", {}).items()):
            self._pass_by(state, f"{path}/{slot}")
            after = self._step(state, "slot", slot)
            self._meet(version, (*site, "fill", slot), inner, after, f"{path}/{slot}")

    def _pass_by(self, state: State, path: str) -> None:
        """Keep the paths at which a selection had come furthest, to name them if it misses."""
        for index, mask in state:
            found, reached = self.found[index], mask.bit_length()
            if reached > found.furthest:
                found.furthest, found.beside = reached, []
            if reached == found.furthest and len(found.beside) < _MOST_BESIDE:
                found.beside.append(path)

    def _choose(
        self, version: Version, index: int, site: Site, record: Mapping[str, Any], path: str
    ) -> None:
        found = self.found[index]
        if self.selections[index].holds(record):
            version.chosen.setdefault(index, []).append(site)
            found.paths.setdefault((version.scope, site), path)
        else:
            found.near.setdefault((version.scope, site), path)

    def _runs(self, name: str, node: Mapping[str, Any], state: State, path: str) -> Iterator[Run]:
        """Walk the versions of a node's templates, those of the most copies first."""
        if not is_repeat(node):
            if node["use"] in self._open:
                used = node["use"]
                yield Run(0, None, used, self._enter(used, state, f"{path}.", name))
            return
        shared = node.get("share") is True
        count = None if shared else _count(node["repeat"])
        self._check_indices(state, path, count, shared=shared)
        if shared:
            yield self._run(0, None, node["block"], state, f"{path}.", name)
            return
        instead = {int(index): used for index, used in node.get("instead", {}).items()}
        cuts = {0, *instead, *(i + 1 for i in instead), *self._cuts(state)}
        alike: dict[tuple[str, State], list[Piece]] = {}
        for piece in _pieces(cuts, count):
            after = self._step(state, "index", str(piece[0]), piece[0])
            alike.setdefault((instead.get(piece[0], node["block"]), after), []).append(piece)
        groups = sorted(alike.items(), key=lambda item: _rank(item[0][1], item[1]))
        for place, ((used, after), pieces) in enumerate(groups):
            for low, high in pieces:
                label = f"{low}" if high == low else f"{low}_{high}"
                mark = label.replace("_", "-")
                if not place:
                    label, mark = name, mark if low in instead else "*"
                yield self._run(low, high, used, after, f"{path}.{mark}.", label)

    def _run(
        self, low: int, high: int | None, used: str, state: State, path: str, label: str
    ) -> Run:
        version = self._enter(used, state, path, label) if used in self._open else None
        return Run(low, high, used, version)

    def _step(self, state: State, kind: Kind, word: str, index: int = 0) -> State:
        """Return where selections may go on after one more piece of a path."""
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
        """Let `**` stand for nothing, too."""
        for position, segment in enumerate(self.selections[which].segments):
            if segment.kind == "any" and mask >> position & 1:
                mask |= 2 << position
        return mask

    def _indices(self, state: State) -> Iterator[tuple[int, int, int, bool]]:
        """Walk the numbers that come next: selection, first, last, and whether `**` is before."""
        for which, mask in state:
            segments = self.selections[which].segments
            for position, segment in enumerate(segments):
                if segment.kind == "index" and mask >> position & 1:
                    loose = segments[position - 1].kind == "any"
                    yield which, segment.low, segment.high, loose

    def _cuts(self, state: State) -> set[int]:
        return {cut for _, low, high, _ in self._indices(state) for cut in (low, high + 1)}

    def _check_indices(self, state: State, path: str, count: int | None, *, shared: bool) -> None:
        """Note the numbers that are no copy of a repeat."""
        for which, _, high, loose in self._indices(state):
            if loose:
                continue
            if shared:
                why = f"the copies of '{path}' share their weights, so one cannot be selected"
            elif count is not None and high >= count:
                why = f"'{path}' has {count} copies, so none is number {high}"
            else:
                continue
            if why not in self.found[which].misplaced:
                self.found[which].misplaced.append(why)


def _count(written: Any) -> int | None:
    """Return how many copies a repeat has, where that is a plain number."""
    if isinstance(written, bool) or not isinstance(written, int | float) or written < 1:
        return None
    return int(written)


def _pieces(cuts: set[int], count: int | None) -> list[Piece]:
    """Return the stretches between cuts, first and last; the last one may be open."""
    starts = sorted(cut for cut in cuts if count is None or cut < count)
    ends: list[int | None] = [start - 1 for start in starts[1:]]
    return list(zip(starts, [*ends, None if count is None else count - 1], strict=True))


def _rank(state: State, pieces: list[Piece]) -> tuple[float, int, Piece]:
    """Order copies: most of them first, and of as many those that selections leave alone."""
    copies = sum(float("inf") if high is None else high - low + 1 for low, high in pieces)
    return -copies, sum(mask.bit_count() for _, mask in state), pieces[0]
