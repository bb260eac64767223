#!/bin/sh
# Create .venv and install weft into it with the pinned constraints.  Also install Debian's
# graphviz, which draws pictures, if `dot` is missing and installing it is permitted.
# The Makefile calls this script; a repeated run redoes only outdated parts.
#
#   PIP_ARGS   extra arguments for pip install, such as another index
#   PYTHON     interpreter to use (default: the newest suitable one)
#   LOCKED     cpu or cuda: install only files with the digests of tools/locked.txt, and PyTorch for
#              processors alone, whose files pip does not check, or that of PyPI, which it does
set -eu
cd "$(dirname "$0")/.."

stamp=.venv/.installed
log=.venv/setup.log

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

suitable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if suitable "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# Run apt-get as root or through sudo without a password; fail if neither is possible.
apt() {
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" -eq 0 ]; then
        env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=60 "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=60 "$@"
    else
        return 1
    fi
}

# Install one Debian package; update the package lists only if that fails.
apt_install() {
    apt install --no-install-recommends "$1" || { apt update && apt install --no-install-recommends "$1"; }
}

# Run a command with its output in the log; on failure, print the end of the log.
logged() {
    if ! "$@" >>"$log" 2>&1; then
        tail -n 40 "$log" >&2
        fail "failed: $* (full log: $log)"
    fi
}

make_venv() {
    python=$(find_python) || fail "Python 3.11 or newer is needed (on Debian: apt-get install python3 python3-venv); or choose one with PYTHON=/path/to/python3"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        say "installing $package"
        apt_install "$package" >/dev/null 2>&1 || true
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            fail "$python cannot make virtual environments; on Debian: apt-get install $package"
    fi
    say "creating .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv || fail "could not create .venv"
}

install_graphviz() {
    if command -v dot >/dev/null; then return; fi
    say "installing graphviz, which draws the pictures"
    if apt_install graphviz >>"$log" 2>&1 && command -v dot >/dev/null; then return; fi
    say "graphviz could not be installed; weft draw needs it: apt-get install graphviz"
}

now=${LOCKED:-}$(cat pyproject.toml constraints.txt tools/locked*.txt .ci/setup.sh .ci/weft_build.py | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$now" ] && [ -e .editable/weft ] && .venv/bin/python -c 'import weft' 2>/dev/null; then
    touch "$stamp"
    exit 0
fi

if ! { [ -x .venv/bin/python ] && suitable .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
    make_venv
fi
rm -f "$stamp"
: >"$log"
install_graphviz
say "installing weft and its tools (the first installation takes minutes; log: $log)"
# shellcheck disable=SC2086 # PIP_ARGS may contain several words
install() { logged .venv/bin/python -m pip install --disable-pip-version-check ${PIP_ARGS:-} "$@"; }
case "${LOCKED:-}" in
    '') install -c constraints.txt -e '.[dev]' ;;
    cpu) install --no-deps "$(grep '^torch==' constraints.txt)" ;;
    cuda) install --no-deps --require-hashes -r tools/locked-torch.txt ;;
    *) fail "LOCKED is cpu, cuda or empty, not '$LOCKED'" ;;
esac
if [ -n "${LOCKED:-}" ]; then
    # What has no wheel is built without isolation, into which pip would install without digests.
    install --require-hashes -r tools/release.txt
    install --no-deps --no-build-isolation --require-hashes -r tools/locked.txt
    install --no-deps --no-build-isolation -e .
    logged .venv/bin/python -m pip check
fi
printf '%s\n' "$now" >"$stamp"
