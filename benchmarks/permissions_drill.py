"""Test that commands of a user without permissions end with one error, and that nothing is lost.

    python benchmarks/permissions_drill.py

A tiny run and a study are written into three folders: one that others may read and not
write, one that only its owner may enter, and one of the user.  As root, the trials run as user
65534 without capabilities (with util-linux, in a mount namespace in which Python can be read);
as another user, they run as that one, to whom such folders are closed as well.

A command that may not read or write must end with exit code 1 and "Permission denied", without a
traceback, and with the same files as before in all folders.  What may be read must work.  At last,
the folder of the checkpoints is closed while a training runs: it must end with that error, and the
continued training with the bits of an undisturbed one.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import weft
from kill_drill import same
from kill_drill_runs import write_run
from study_kill_drill import write_study
from weft.runtime.cli.main import main as command

USER = 65534
"""Number of a user who owns no file."""
UPDATES = 6
DENIED = "Permission denied"


def opened(folder: Path) -> None:
    """Let anybody read a folder."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


def times(folder: Path) -> dict[Path, int]:
    """Return when each file below a folder was written, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def write_folders(base: Path) -> None:
    """Write the folders of the trials."""
    first = base / "open"
    first.mkdir()
    (first / "study").mkdir()
    run = write_run(first, UPDATES)
    write_study(first / "study")
    weft.train(run, out=first / "run")
    (first / "token").write_text("a-token-of-the-server")
    shutil.copytree(first, base / "closed")
    (base / "own").mkdir()
    shutil.copy(run, base / "own")
    text = (base / "closed/run.json").read_text().replace(str(first), str(base / "closed"))
    (base / "own/closed-data.json").write_text(text)
    (base / "own/links").symlink_to(base / "closed")


def trials(base: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Return the commands that may not read or write what they need, and those that may."""
    readable, closed, own = base / "open", base / "closed", base / "own"
    run, checkpoint = str(readable / "run.json"), str(readable / "run/checkpoints/000006")
    refused = [["train", run, "--out", str(readable / "run"), "--resume"]]
    for out in (readable / "out", closed / "out", own / "links/out"):
        refused += [
            ["train", run, "--out", str(out)],
            ["prepare", run, "--out", str(out)],
            ["average", str(readable / "run"), "-o", str(out)],
            ["eject", checkpoint, "-o", f"{out}.py"],
            ["export", checkpoint, "--to", "huggingface", "-o", str(out)],
            ["draw", "transformer-tiny", "-o", f"{out}.dot"],
            ["translate", checkpoint, str(readable / "valid.src"), "-o", f"{out}.txt"],
            ["schema", "-o", f"{out}.json"],
            ["study", "run", str(readable / "study/study.json"), "--out", str(out)],
        ]
    for folder in (closed, own / "links"):
        hidden = str(folder / "run/checkpoints/000006")
        refused += [
            ["check", str(folder / "run/checkpoints/000006/spec.json")],
            ["check", hidden],
            ["train", str(folder / "run.json"), "--out", str(own / "out")],
            ["train", run, "--out", str(folder / "run"), "--resume"],
            ["average", str(folder / "run"), "-o", str(own / "out")],
            ["eject", hidden, "-o", str(own / "out.py")],
            ["export", hidden, "--to", "huggingface", "-o", str(own / "out")],
            ["translate", hidden, str(readable / "valid.src")],
            ["translate", checkpoint, str(folder / "valid.src")],
            ["serve", hidden],
            ["serve", checkpoint, "--token-file", str(folder / "token")],
        ]
    refused.append(["train", str(own / "closed-data.json"), "--out", str(own / "out")])
    allowed = [
        ["check", checkpoint],
        ["translate", checkpoint, str(readable / "valid.src"), "-o", str(own / "translated.txt")],
        ["average", str(readable / "run"), "-o", str(own / "averaged")],
        ["eject", checkpoint, "-o", str(own / "ejected.py")],
        ["export", checkpoint, "--to", "huggingface", "-o", str(own / "exported")],
        ["train", run, "--out", str(own / "trained")],
    ]
    return refused, allowed


def printed(words: list[str]) -> tuple[object, str]:
    """Run a command in this process; return its exit code and what it prints."""
    raw = io.BytesIO()
    text = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with redirect_stdout(text), redirect_stderr(text):
        try:
            code: object = command(words)
        except Exception:  # noqa: BLE001 - any is a mistake of the command
            code = traceback.format_exc()
    return code, raw.getvalue().decode()


class Closing:
    """A listener that closes the folder of the checkpoints at the first one."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of the run."""
        self.checkpoints = folder / "checkpoints"

    def log(self, text: str) -> None:
        """Ignore a line."""

    def validated(self, update: int, values: object) -> None:
        """Ignore a validation."""

    def progress(self, _progress: object) -> None:
        """Close the folder once it has a checkpoint."""
        if any(self.checkpoints.glob("[0-9]*")):
            self.checkpoints.chmod(0o555)


def mistakes(base: Path) -> list[str]:
    """Run all trials as this user; return what is wrong."""
    refused, allowed = trials(base)
    wrong = []
    before = times(base / "own")
    for words in refused:
        code, text = printed(words)
        good = code == 1 and DENIED in text and "Traceback" not in text
        print("refused" if good else f"WRONG, exit code {code}", shlex.join(words), flush=True)
        wrong += [] if good else [f"{shlex.join(words)}\n{text[-2000:]}"]
    wrong += [f"written: {path}" for path, _ in times(base / "own").items() - before.items()]
    for words in allowed:
        code, text = printed(words)
        print("works" if code == 0 else f"WRONG, exit code {code}", shlex.join(words), flush=True)
        wrong += [] if code == 0 else [f"{shlex.join(words)}\n{text[-2000:]}"]
    run, folder = base / "own/run.json", base / "own/interrupted"
    try:
        weft.train(run, out=folder, listener=Closing(folder))
        wrong.append("a training goes on although it cannot save")
    except weft.InputError as error:
        wrong += [] if DENIED in str(error) else [str(error)]
    (folder / "checkpoints").chmod(0o755)
    weft.train(run, out=folder, resume=True)
    last = "checkpoints/000006/weights.safetensors"
    if not same(folder / last, base / "open/run" / last):
        wrong.append("the continued training has other bits")
    print(f"{len(refused)} refused, {len(allowed)} allowed, 1 continued, {len(wrong)} wrong")
    return wrong


def as_nobody(base: Path) -> int:
    """Run the trials as another user; return the exit code."""
    base.chmod(0o755)
    for path in (base / "own", base / "own/run.json", base / "own/closed-data.json"):
        os.chown(path, USER, USER)
    prefix = Path(sys.base_prefix)
    hidden = [path for path in reversed(prefix.parents) if not path.stat().st_mode & 1]
    lines = ["set -e"]
    if hidden:
        python = base / "python"
        python.mkdir()
        lines += [
            shlex.join(["mount", "--bind", str(prefix), str(python)]),
            shlex.join(["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(hidden[0])]),
            shlex.join(["mkdir", "-p", str(prefix)]),
            shlex.join(["mount", "--bind", str(python), str(prefix)]),
        ]
    user = [
        "setpriv",
        f"--reuid={USER}",
        f"--regid={USER}",
        "--clear-groups",
    ]
    trial = [sys.executable, str(Path(__file__).resolve()), str(base)]
    lines.append("exec " + shlex.join([*user, "--bounding-set=-all", "--inh-caps=-all", *trial]))
    environ = {**os.environ, "HOME": str(base / "own"), "XDG_CACHE_HOME": str(base / "cache")}
    (base / "cache").mkdir(mode=0o777)
    (base / "cache").chmod(0o777)
    shell = ["unshare", "--mount", "sh", "-c", "\n".join(lines)]
    return subprocess.run(shell, env=environ, cwd=base, check=False).returncode


def main() -> None:
    """Write the folders, and run the trials as a user without permissions."""
    if sys.argv[1:]:
        wrong = mistakes(Path(sys.argv[1]))
        print("\n\n".join(wrong))
        sys.exit(bool(wrong))
    base = Path(tempfile.mkdtemp())
    try:
        write_folders(base)
        before = times(base / "closed")
        opened(base / "open")
        (base / "closed").chmod(0o700 if os.geteuid() == 0 else 0)
        code = as_nobody(base) if os.geteuid() == 0 else bool(mistakes(base))
        (base / "closed").chmod(0o700)
        if times(base / "closed") != before:
            sys.exit("the closed folder has changed")
    finally:
        for path in (base, *base.rglob("*")):
            with suppress(OSError):
                path.chmod(0o755)
        shutil.rmtree(base, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
