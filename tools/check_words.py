"""Refuse words that the project has replaced; part of `make lint`.

One idea has one word, the field's own, in code, messages and prose.  Each pattern below is a word
that was used before, with what to write instead.  Lines that quote an old word on purpose are in
`ALLOWED`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = {
    r"\bkeep masks?\b|\bkeep\[|\b(source|target)_keep\b": "mask",
    r"\bpacked rows\b|that are no padding|\bweft\.pack\b": "unpadded, non-padding",
    r"\bslopes?\b": "gradient (only ALiBi has slopes: see ALLOWED)",
    r"\brecomput\w+": "activation checkpointing, or 'compute again'",
    r"\bset aside\b|\bprojected loss\b": "fused linear cross-entropy",
    r"\bceilings?\b": "peak FLOP/s, or MFU for a share of it",
    r"\bsurviv\w+": "weight transfer, carry over",
    r"\bforeseen\b": "forced prefix",
    r"\bsharers?\b": "data_parallel_size",
    r"\b(?<!of a )(hears|heard) of\b": "is called with, receives, logs",
    r"\bwish(es)?\b": "request",
    r"\bis told\b|\bare told\b|\bas told\b": "receives, is given",
    r"(?<![Tt]here )\bis no (padding|part|name|file|number|list|choice|block|port)\b": "is not a",
    r"\bnobody\b": "name who, or use the passive",
    r"\bSay whether\b": "Return whether",
    r"\bby hand of\b|\bgoes? on with\b|\bstands? for itself\b": "a plain verb",
}
"""Pattern to what to write instead."""
ALLOWED = (
    r"(?i)alibi|^tests/blocks/attention/test_distance\.py",
    r"keep\[B S\]\", \"\.inputs\.mask",
    r"^CHANGELOG\.md",
    r"^tools/check_words\.py",
    r"^docs/results\.md.*share_of_ceiling",
)
"""Patterns of `file:line text` that are left alone."""
SUFFIXES = (".py", ".md", ".html", ".toml", ".sh")


def files() -> list[str]:
    """Return the tracked text files, relative to the root."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if name.endswith(SUFFIXES)]


def found_in(name: str) -> list[str]:
    """Return a line for each old word in a file: where it is, and what to write instead."""
    path = ROOT / name
    if not path.is_file():
        return []
    problems = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if any(re.search(pattern, f"{name}:{line}") for pattern in ALLOWED):
            continue
        for pattern, instead in WORDS.items():
            problems += [
                f"{name}:{number}: '{match[0]}'; write: {instead}"
                for match in re.finditer(pattern, line)
            ]
    return problems


def main() -> int:
    """Print every old word; return 1 if there is one."""
    problems = [line for name in files() for line in found_in(name)]
    print("\n".join(problems), end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
