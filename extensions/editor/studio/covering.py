"""Cover records of a spec by selections: the fewest patterns that reach exactly these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, takewhile
from typing import Any

from ....specs.patches.selections import read_selection
from ....specs.patches.walk import Site, TooMuchError, Walk

Place = tuple[str, Site]
"""A record of a spec: its template, and its site there."""
_SEVERAL = 2
_MOST_PLACES = 400
"""Maximum number of records for which patterns are searched."""


def covering(spec: Mapping[str, Any], paths: Sequence[str]) -> list[str]:
    """Return selections that together reach exactly the records that some paths reach.

    Args:
        spec: a spec as JSON data, without `extends`.
        paths: selections of nodes or of blocks in slots, such as `encoder.*.self_attention/f`.

    Returns:
        As few selections as found; the paths themselves, if patterns reach other records.
    """
    paths = list(dict.fromkeys(paths))
    if len(paths) < _SEVERAL or len(paths) > _MOST_PLACES or any(p.startswith("/") for p in paths):
        return paths
    try:
        walk = Walk(spec, [read_selection(path) for path in paths])
        reached = {
            path: {*matched.paths} for path, matched in zip(paths, walk.matches, strict=True)
        }
        texts = list(dict.fromkeys(_patterns(walk, reached)))
        matches = Walk(spec, [read_selection(text) for text in texts]).matches
    except TooMuchError:
        return paths
    targets = set[Place]().union(*reached.values())
    fitting = {text: {*match.paths} for text, match in zip(texts, matches, strict=True)}
    fitting = {text: got for text, got in fitting.items() if got and got <= targets}
    return _fewest({**fitting, **reached}, targets)


def _fewest(reached: Mapping[str, Collection[Place]], targets: Collection[Place]) -> list[str]:
    """Return texts that reach all wanted places: always the one that reaches most of the rest."""
    uncovered, chosen = {*targets}, list[str]()
    while uncovered:
        best = max(
            reached, key=lambda text: len(uncovered & {*reached[text]})
        )  # the first of the best
        chosen.append(best)
        uncovered -= {*reached[best]}
    return chosen


def _patterns(walk: Walk, reached: Mapping[str, Collection[Place]]) -> Iterator[str]:
    """Yield patterns that may reach exactly all of some paths, or some that are much alike."""
    uses = {path: _use(walk, places) for path, places in reached.items()}
    yield from _common([*reached], uses)
    traits = {path: _traits(path, uses[path]) for path in reached}
    shared = {trait for some in traits.values() for trait in some}
    for few in (*((predicate,) for predicate in sorted(shared)), *combinations(sorted(shared), 2)):
        some = [path for path in reached if traits[path].issuperset(few)]
        if 1 < len(some) < len(reached):
            yield from _common(some, uses)


def _traits(path: str, use: str) -> set[tuple[str, str]]:
    scope, name, slot = _parts(path)
    return {("scope", scope.partition(".")[0]), ("name", name), ("slot", slot), ("use", use)}


def _parts(path: str) -> tuple[str, str, str]:
    """Return the scope of a path, the name of its node, and its slots with their slash."""
    node, slash, slots = path.partition("/")
    scope, _, name = node.rpartition(".")
    return scope, name, slash + slots


def _use(walk: Walk, places: Collection[Place]) -> str:
    """Return the `use` that records have in common as a predicate, or an empty text."""
    uses = {str(walk.record(scope, site).get("use", "")) for scope, site in places}
    use = uses.pop() if len(uses) == 1 else ""
    return f"[use={use}]" if use and not {"[", "]"} & {*use} else ""


def _common(paths: Sequence[str], uses: Mapping[str, str]) -> Iterator[str]:
    """Yield patterns of what some paths have in common."""
    scopes, names, slots = (set(column) for column in zip(*map(_parts, paths), strict=True))
    if len(slots) > 1:
        return
    [slot] = slots
    use = uses[paths[0]] if len({uses[path] for path in paths}) == 1 else ""
    first = {scope.partition(".")[0] for scope in scopes}
    starts = ["**", *(f"{scope}.**" for scope in first if scope and len(first) == 1)]
    for start in starts:
        if use and not use.startswith("[use=="):
            yield f"{start}{slot}{use}"
        if len(names) == 1:
            yield f"{start}.{next(iter(names))}{slot}"
    ends = sorted(_globs(names))
    inside = [f"{scope}." if scope else "" for scope in scopes] if len(scopes) == 1 else ["**."]
    for start in inside:
        yield from (f"{start}{end}{slot}" for end in ends)
        if use:
            yield from (f"{start}{end}{slot}{use}" for end in ends)
            yield from (f"{start}*{slot}{use}", f"**{slot}{use}")


def _globs(names: Collection[str]) -> Iterator[str]:
    """Yield patterns of names that begin or end with the same words, between underscores."""
    if len(names) < _SEVERAL:
        return
    words = [name.split("_") for name in names]
    begin = _alike(words)
    end = _alike([word[::-1] for word in words])[::-1]
    if begin:
        yield "_".join([*begin, "*"])
    if end:
        yield "_".join(["*", *end])


def _alike(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the words with which all lists begin, without the last word of the shortest."""
    columns = list(zip(*lists, strict=False))[: min(map(len, lists)) - 1]
    return [column[0] for column in takewhile(lambda column: len({*column}) == 1, columns)]
