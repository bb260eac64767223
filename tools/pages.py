"""What the tools that write a page of `docs/` share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from weft.specs.files import write_beside


def write_page(name: str, page: Callable[[], str], about: str) -> None:
    """Write a page into the folder that the command line names.

    Args:
        name: name of the file.
        page: returns its text.
        about: what the tool does, for `--help`.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("folder", type=Path, help="folder of the page, such as docs")
    write_beside(parser.parse_args().folder / name, page().encode(), "page")
