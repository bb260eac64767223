"""Make shards on an executor: each piece of text is a unit, and its shard the result."""

from __future__ import annotations

import pickle
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from ...system.executors.executor import On, opened
from ...system.executors.units import Watch, WorkUnit, results_of
from .shards import Maker

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from .shards import ShardRecipe, ShardText


def make_shards(
    recipe: ShardRecipe,
    pieces: Iterator[ShardText],
    processes: int | None,
    on: On = "local",
    watch: Watch | None = None,
) -> Generator[ShardText]:
    """Make a shard of each piece; yield the pieces in the order of completion.

    Args:
        recipe: settings of the shards.
        pieces: text, consumed on demand.
        processes: shards that are made at the same time; with 1 on this machine, in this process.
        on: the executor, whose workers see the folder of the shards.
        watch: called with the pieces as units.

    Raises:
        InputError: a line is not UTF-8; the first such line, for any number of processes.
        LostError: the workers of a shard were killed; finished shards stay.
    """
    digests = [sha256(side.vocabulary.path.read_bytes()).digest() for side in recipe.sides]
    settings = pickle.dumps((recipe, digests))

    def next_piece() -> WorkUnit[ShardText] | None:
        piece = next(pieces, None)
        if piece is None:
            return None
        first, last = piece.first, piece.first + piece.rows - 1
        location = f"{piece.paths[0]}:{first}"
        return WorkUnit(piece.number, f"lines {first:,}-{last:,}", piece.rows, location, piece)

    with opened(on, processes) as engine:
        results = results_of(
            next_piece,
            lambda piece: (make_shard, settings, piece),
            engine,
            recipe.folder,
            watch=watch,
        )
        for unit, _ in results:
            yield unit.item


def make_shard(settings: bytes, piece: ShardText) -> None:
    """Make the shard of a piece, in a worker.

    Args:
        settings: the pickled recipe, with digests of its tokenizers.
        piece: the text.

    Raises:
        InputError: a line is not UTF-8.
    """
    _maker(settings).make(piece)


@lru_cache(maxsize=1)
def _maker(settings: bytes) -> Maker:
    """Return the maker of a recipe, whose tokenizers are loaded once in each process."""
    recipe, _ = pickle.loads(settings)
    return Maker(recipe)
