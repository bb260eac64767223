"""Write the versions that CI and releases install, with the digests of their files.

    pip install uv
    python tools/lock.py

pip cannot check digests in constraints: one digest anywhere demands digests of everything, and a
checkout has no file to digest.  So `constraints.txt` chooses versions of what Weft names, and this
program asks uv for those of everything else, for all versions of Python and all systems, with the
digests of all their files on PyPI.  `locked.txt` has what all installations share.
`locked-torch.txt` has PyTorch as it is on PyPI, with the packages of CUDA; the build for processors
alone is on another index, with other files.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKED = ROOT / "tools" / "locked.txt"
TORCH = ROOT / "tools" / "locked-torch.txt"
EXTRAS = (
    *("ctranslate2", "demo", "dev", "docs", "lsp", "onnx", "parity", "serve", "studio"),
    "studio-tests",
)
"""What CI and releases install; one version of each package fits all of them."""
OF_TORCH = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")
HEAD = "# Written by tools/lock.py; pip install --require-hashes --no-deps -r FILE\n"


def resolved() -> str:
    """Return the list of packages that uv chooses, in the form of pip."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config"]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--constraints", "constraints.txt"]
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    done = subprocess.run(
        [*command, *extras, "pyproject.toml"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    return done.stdout.decode()


def lines_of(text: str) -> list[str]:
    r"""Return one line for each package.

    >>> lines_of("a==1 \\\n    --hash=sha256:0\nb==2 \\\n    --hash=sha256:1\n")
    ['a==1 --hash=sha256:0', 'b==2 --hash=sha256:1']
    """
    return re.sub(r" *\\\n *", " ", text).splitlines()


def main() -> None:
    """Write both files."""
    lines = lines_of(resolved())
    for path, of_torch in ((LOCKED, False), (TORCH, True)):
        chosen = [line for line in lines if bool(OF_TORCH.match(line)) == of_torch]
        path.write_text(HEAD + "\n".join(chosen) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
