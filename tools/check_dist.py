"""Build the distributions, install each outside the checkout, and use what was installed.

    python tools/check_dist.py              # build into dist/, install and use both
    python tools/check_dist.py --demo       # train the demo of the wheel to its end: minutes
    python tools/check_dist.py --dist DIR   # use what is in DIR instead of building

A checkout hides mistakes of packaging: a file that is missing in the wheel is still found beside
the code.  So this script works in a temporary folder, in fresh virtual environments.  In each it
checks and draws specs, opens the studio, asks the language server, trains the demo for a few
updates, translates with the averaged checkpoint, and serves it over HTTP until SIGTERM; all without
node.  The variable PIP_ARGS holds extra arguments for `pip install`, as for `make`.  If LOCKED is
set, only files with the digests of `locked.txt` and `locked-torch.txt` are installed: a program of
another package could change what is about to be released.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lock import LOCKED, TORCH

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("serve", "demo", "studio", "lsp")
"""Extras to install, where the distribution has them."""
FOLDERS = ("specs", "graphs", "blocks", "runtime", "extensions")
"""Folders of the package."""
NOT_INSTALLED = ("tests", "docs", "tools", "benchmarks", "editors", ".ci", ".github", "setup.py")
"""What a wheel must not contain of the checkout."""
SOURCE_ONLY = (
    "constraints.txt",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "setup.py",
    "tests/conftest.py",
    "tests/golden/now",
    "tools/check_dist.py",
)
"""Some of the files and folders that the source distribution must contain."""
FEW_UPDATES = 20
"""Updates of the demo, unless all are requested."""
SERVER_STARTS = 180
"""Seconds after which a server that is not ready has failed."""


BUILDERS = ROOT / "tools" / "release.txt"
"""What builds distributions, with digests."""


def say(text: str) -> None:
    """Print one line of progress at once."""
    print(text, flush=True)


class Installed:
    """A virtual environment with Weft, and an empty folder to run commands in."""

    def __init__(self, folder: Path) -> None:
        """Create the environment."""
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        venv.create(folder / "venv", with_pip=True)
        self.bin = folder / "venv" / "bin"
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
        self.environment = {k: v for k, v in os.environ.items() if k not in hidden}
        self.environment["PATH"] = f"{self.bin}{os.pathsep}{self._path_without_node()}"

    def _path_without_node(self) -> str:
        """Return the folders with programs; one with node is replaced by links to its others.

        The page of the studio is in the wheel, so those who install it do not need node.
        """
        folders = []
        for number, name in enumerate(os.environ.get("PATH", "").split(os.pathsep)):
            folder = Path(name)
            if (folder / "node").exists():
                other = self.folder / f"programs-{number}"
                other.mkdir()
                for program in folder.iterdir():
                    if program.name not in ("node", "npm", "npx"):
                        (other / program.name).symlink_to(program)
                folder = other
            folders.append(str(folder))
        return os.pathsep.join(folders)

    def run(self, *command: str | Path, stdin: str | None = None, expect: int = 0) -> str:
        """Run a program of the environment; return its output without that to stderr.

        Raises:
            SystemExit: its exit code is not `expect`.
        """
        words = [str(self.bin / command[0]), *map(str, command[1:])]
        began = time.monotonic()
        done = subprocess.run(
            words,
            cwd=self.work,
            env=self.environment,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        shown = shlex.join(map(str, command))
        if done.returncode != expect:
            sys.exit(f"{shown}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
        say(f"  {time.monotonic() - began:6.1f} s  {shown[:110]}")
        return done.stdout

    def install(self, distribution: str) -> None:
        """Install a distribution with the pinned versions of its dependencies."""
        arguments = shlex.split(os.environ.get("PIP_ARGS", ""))
        install = ("python", "-m", "pip", "install", "--quiet", *arguments)
        if not os.environ.get("LOCKED"):
            self.run(*install, "-c", ROOT / "constraints.txt", distribution)
            return
        files = [word for path in (LOCKED, TORCH) for word in ("-r", path)]
        self.run(*install, "--require-hashes", "-r", BUILDERS)
        alone = (*install, "--no-deps", "--no-build-isolation")
        self.run(*alone, "--require-hashes", *files)
        self.run(*alone, distribution)
        self.run("python", "-m", "pip", "check")


def _project() -> dict[str, Any]:
    """Return `pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def build(out: Path, folder: Path) -> None:
    """Build the source distribution, and the wheel from it; check how PyPI would show them."""
    tools = Installed(folder / "build")
    tools.run("python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", BUILDERS)
    shutil.rmtree(out, ignore_errors=True)
    tools.run("python", "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    checks = Installed(folder / "checks")  # what has no digests touches no distribution before
    checks.run("python", "-m", "pip", "install", "--quiet", "twine")
    checks.run("twine", "check", "--strict", *sorted(out.iterdir()))


def check_contents(wheel: Path, source: Path) -> None:
    """Compare the contents with the checkout.

    Raises:
        SystemExit: a file is missing, or one that must not be installed is in the wheel.
    """
    with zipfile.ZipFile(wheel) as opened:
        installed = {n.removeprefix("weft/") for n in opened.namelist() if n.startswith("weft/")}
    with tarfile.open(source) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    packages = {ROOT, ROOT / "examples"} | {
        path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("__init__.py")
    }
    page = ROOT / "docs" / "errors.md"  # which `weft check --explain` prints
    stubs = {ROOT / "__init__.pyi", ROOT / "plugin.pyi"}
    files = {*stubs, ROOT / "py.typed", page} | {
        path for folder in packages for path in folder.glob("*.py")
    }
    for folder in FOLDERS:
        for ending in ("*.json", "*.html", "*.js", "*.css"):
            files |= {*(ROOT / folder).rglob(ending)}
    expected = {str(path.relative_to(ROOT)) for path in files} - {"setup.py"}
    missing = sorted(expected - installed)
    missing += sorted(f"{name} (sdist)" for name in expected.union(SOURCE_ONLY) - names)
    extra = sorted(n for n in installed - expected if n.split("/")[0] in NOT_INSTALLED)
    extra += sorted(n for n in names if "__pycache__" in n or n.startswith((".venv", "outputs")))
    if missing or extra:
        sys.exit(f"missing: {missing}\nnot wanted: {extra}")
    say(f"  {len(installed)} files in the wheel, {len(names)} in the source distribution")


def use(installed: Installed, *, demo: bool) -> None:
    """Use the commands of one installation; the checkout is not on any path."""
    work = installed.work
    where = installed.run("python", "-c", "import weft; print(weft.__file__)").strip()
    if not Path(where).is_relative_to(installed.folder):
        sys.exit(f"imported {where}, which is not the installed package")
    installed.run("weft", "check", "transformer-base")
    installed.run("weft", "check", "transformer-base", "--set", "heads=7", expect=1)
    picture = "base.svg" if shutil.which("dot") else "base.dot"
    installed.run("weft", "draw", "transformer-base", "-o", picture)
    if not (work / picture).stat().st_size:
        sys.exit(f"{picture} is empty")
    _draw_page(installed)
    _open_studio(installed)
    _ask_language_server(installed)
    few = () if demo else ("--updates", str(FEW_UPDATES))
    installed.run("weft", "demo", "--out", "demo", "--quiet", *few)
    checkpoint = Path("demo/averaged")
    lines = ["three hundred and seven", "forty-two"]
    output = installed.run("weft", "translate", checkpoint, stdin="\n".join(lines) + "\n")
    right = ["dreihundertsieben", "zweiundvierzig"]
    if len(output.splitlines()) != len(lines) or (demo and output.splitlines() != right):
        sys.exit(f"{lines} were translated to {output!r}")
    _serve(installed, checkpoint)


def _draw_page(installed: Installed) -> None:
    """Write a drawing as one page, which must load nothing."""
    installed.run("weft", "draw", "transformer-base", "-o", "base.html")
    page = (installed.work / "base.html").read_text(encoding="utf-8")
    if "default-src 'none'" not in page or re.search(r"<(script|link|img)[^>]+(src|href)=", page):
        sys.exit("base.html may load other files")


def _open_studio(installed: Installed) -> None:
    """Start the studio on a file, get its page, and send it a text with a mistake."""
    if (
        installed.run("python", "-c", "import shutil; print(shutil.which('node'))").strip()
        != "None"
    ):
        sys.exit("node is on the path")
    command = [str(installed.bin / "weft"), "studio", "transformer-base", "--no-browser"]
    log = installed.work / "studio.log"
    with log.open("w") as output:
        studio = subprocess.Popen(
            command, cwd=installed.work, env=installed.environment, stdout=output, stderr=output
        )
    try:
        url = _address(studio, log)
        token = log.read_text().rpartition("#")[2].split()[0]
        page = _answer(url)
        if b"<script" not in page:
            sys.exit(f"the studio answered {page[:200]!r}")
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        text = json.loads(_answer(f"{url}/api/file", headers))["text"]
        wrong = json.dumps({"text": text.replace('"linear@1"', '"liner@1"')}).encode()
        state = json.loads(_answer(f"{url}/api/look", headers, wrong))
        if [finding["code"] for finding in state["findings"]] != ["N01"]:
            sys.exit(f"the studio found {state['findings']}")
        try:
            _answer(f"{url}/api/file")
        except urllib.error.HTTPError as error:
            error.close()
        else:
            sys.exit("the studio answers without its token")
    finally:
        studio.terminate()
        studio.wait(timeout=60)
    say(f"  weft studio: {url} answered, with findings")


def _answer(url: str, headers: dict[str, str] | None = None, data: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, data=data, headers=headers or {})
    with urllib.request.urlopen(request, timeout=60) as response:
        return bytes(response.read())


def _ask_language_server(installed: Installed) -> None:
    """Start the language server and ask what it can do."""
    params = {"processId": None, "rootUri": None, "capabilities": {}}
    asked = [("initialize", 1, params), ("shutdown", 2, None), ("exit", None, None)]
    messages = [
        json.dumps({"jsonrpc": "2.0", "method": name, "params": params} | ({"id": i} if i else {}))
        for name, i, params in asked
    ]
    text = "".join(f"Content-Length: {len(message)}\r\n\r\n{message}" for message in messages)
    if '"renameProvider"' not in installed.run("weft", "lsp", stdin=text):
        sys.exit("the language server did not say what it can do")


def _serve(installed: Installed, checkpoint: Path) -> None:
    """Start a server on a free port, send it one request, and stop it."""
    program = str(installed.bin / "weft")
    command = [program, "serve", str(checkpoint), "--port", "0", "--compile", "off"]
    log = installed.work / "server.log"
    with log.open("w") as stderr:
        server = subprocess.Popen(
            command, cwd=installed.work, env=installed.environment, stderr=stderr
        )
    try:
        url = _address(server, log)
        request = urllib.request.Request(
            f"{url}/translate",
            data=json.dumps({"source": "forty-two"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            [result] = json.load(response)["results"]
        if not result["translations"]:
            sys.exit(f"the server answered {result}")
        server.send_signal(signal.SIGTERM)
        if server.wait(timeout=60) not in (0, 143):
            sys.exit(f"the server stopped with {server.returncode}: {log.read_text()}")
    finally:
        server.kill()
    say(f"  weft serve: POST {url}/translate answered; stopped by SIGTERM")


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server prints its address; return it.

    Raises:
        SystemExit: it stopped, or took too long.
    """
    until = time.monotonic() + SERVER_STARTS
    while time.monotonic() < until and server.poll() is None:
        if match := re.search(r"http://[\w.]+:\d+", log.read_text()):
            return match[0]
        time.sleep(0.2)
    sys.exit(f"the server is not ready: {log.read_text()}")


def requirement(path: Path) -> str:
    """Return what pip installs: a file, with those of `EXTRAS` that the project has."""
    extras = [e for e in EXTRAS if e in _project()["project"]["optional-dependencies"]]
    return f"weft[{','.join(extras)}] @ {path.as_uri()}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, install and use both distributions.

    Raises:
        SystemExit: something failed.
    """
    parser = argparse.ArgumentParser(description="Build, install and use the distributions.")
    parser.add_argument("--dist", type=Path, help="folder with both distributions; build nothing")
    parser.add_argument(
        "--demo", action="store_true", help="train the demo of the wheel to its end"
    )
    parser.add_argument("--build-only", action="store_true", help="install nothing")
    options = parser.parse_args(arguments)
    out = (options.dist or ROOT / "dist").resolve()
    with tempfile.TemporaryDirectory(prefix="check-dist-") as name:
        folder = Path(name).resolve()
        if options.dist is None:
            say(f"build into {out}")
            build(out, folder)
        [wheel], [source] = sorted(out.glob("weft-*.whl")), sorted(out.glob("weft-*.tar.gz"))
        check_contents(wheel, source)
        if options.build_only:
            return
        for path in (wheel, source):
            say(f"install and use {path.name}")
            installed = Installed(folder / path.suffix.lstrip("."))
            installed.install(requirement(path))
            use(installed, demo=options.demo and path == wheel)
            shutil.rmtree(installed.folder)
    say("distributions: no errors")


if __name__ == "__main__":
    main()
