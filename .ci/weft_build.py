"""Build backend: setuptools, with an editable install that type checkers can follow.

The root of the repository is the package `weft`, whatever the checkout is called.  setuptools
installs such a package with an import hook alone, which mypy, pyright and editors do not run.
This backend adds a folder to the path, `.editable`, with a link `weft -> ..`: they read the
package through it.  Python itself imports through the hook, from the checkout without the link,
so that tracebacks, breakpoints and coverage name the real files.

Everything else is setuptools'; see docs/decisions/0029-editable-installs-for-type-checkers.md.
"""  # noqa: INP001 - a PEP 517 backend is a module, not part of a package

from __future__ import annotations

import base64
import hashlib
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import build_meta

if TYPE_CHECKING:
    from collections.abc import Mapping

    Settings = Mapping[str, str | list[str] | None] | None

ROOT = Path(__file__).resolve().parents[1]
LINKS = ROOT / ".editable"
HOOK = '''"""Import `weft` from a checkout."""

import sys
from importlib.util import spec_from_file_location

ROOT = {root!r}


class Finder:
    """Finds the package `weft`; its submodules are found through its path."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return the spec of the package, or None for any other module."""
        if name != "weft":
            return None
        return spec_from_file_location(
            name, ROOT + "/__init__.py", submodule_search_locations=[ROOT]
        )


def install():
    """Use the finder before all others, so that the link for type checkers is not imported."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
'''
WHEEL = "Wheel-Version: 1.0\nGenerator: weft_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

build_sdist = build_meta.build_sdist
build_wheel = build_meta.build_wheel
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Write a wheel that makes `import weft` use this checkout, and return its name.

    Args:
        wheel_directory: folder to write the wheel into.
        config_settings: settings for setuptools.
        metadata_directory: the `.dist-info` folder, if pip has already asked for it.
    """
    _link()
    with tempfile.TemporaryDirectory() as folder:
        if metadata_directory is None:
            made = prepare_metadata_for_build_editable(folder, config_settings)
            about = Path(folder) / made
        else:
            about = Path(metadata_directory)
        name, version = about.name.removesuffix(".dist-info").split("-")
        files = {
            f"{about.name}/{path.relative_to(about).as_posix()}": path.read_bytes()
            for path in sorted(about.rglob("*"))
            if path.is_file()
        }
    files |= {
        f"{about.name}/WHEEL": WHEEL.encode(),
        "__editable___weft_hook.py": HOOK.format(root=ROOT.as_posix()).encode(),
        "__editable__.weft.pth": (
            f"{LINKS}\nimport __editable___weft_hook; __editable___weft_hook.install()\n"
        ).encode(),
    }
    record = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    record.append(f"{about.name}/RECORD,,")
    files[f"{about.name}/RECORD"] = "".join(f"{line}\n" for line in record).encode()
    wheel = f"{name}-{version}-0.editable-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return wheel


def _link() -> None:
    """Make the link for type checkers; without permission for it only they miss the package."""
    LINKS.mkdir(exist_ok=True)
    (LINKS / ".gitignore").write_text("*\n")
    link = LINKS / "weft"
    if link.is_symlink() or link.exists():
        return
    try:
        link.symlink_to("..", target_is_directory=True)
    except OSError as error:
        sys.stderr.write(f"type checkers will not find weft: cannot make {link}: {error}\n")


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
