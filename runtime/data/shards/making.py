"""Make shards on an executor: each piece of text is a unit, and its shard the result."""

from __future__ import annotations

import pickle
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from ....specs.findings import InputError
from ...system.executors.executor import LostError, On, completed, opened
from .shards import Maker

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Future

    from .shards import ShardRecipe, ShardText


def make_shards(
    recipe: ShardRecipe, pieces: Iterator[ShardText], processes: int | None, on: On = "local"
) -> Generator[ShardText]:
    """Make a shard of each piece; yield the pieces in the order of completion.

    Args:
        recipe: settings of the shards.
        pieces: text, consumed on demand.
        processes: shards that are made at the same time; with 1 on this machine, in this process.
        on: the executor, whose workers see the folder of the shards.

    Raises:
        InputError: a line is not UTF-8; the first such line, for any number of processes.
        LostError: the workers of a shard were killed; finished shards stay.
    """
    failures: dict[int, InputError] = {}
    digests = [sha256(side.vocabulary.path.read_bytes()).digest() for side in recipe.sides]
    settings = pickle.dumps((recipe, digests))
    with opened(on, processes) as engine:

        def submit(piece: ShardText) -> Future[None]:
            return engine.executor.submit(make_shard, settings, piece)

        def next_piece() -> ShardText | None:
            return None if failures else next(pieces, None)

        for event in completed(next_piece, submit, engine.at_once + engine.ahead):
            if event is None:
                continue
            piece, future = event
            error = future.exception()
            if error is None:
                yield piece
            elif isinstance(error, InputError) and not isinstance(error, LostError):
                failures[piece.number] = error
            else:
                raise error
    if failures:  # pieces are submitted in order, so the first failing one is among these
        raise failures[min(failures)]


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
