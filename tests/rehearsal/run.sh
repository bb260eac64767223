#!/usr/bin/env bash
# Run tests/rehearsal with torch's CUDA build and a driver that describes a GPU; see README.md there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
home=.venv-rehearsal
if ! test -e $home/.installed; then
  echo "rehearsal: installing torch's CUDA build and the project into $home (3 GB)"
  "${PYTHON:-python3.11}" -m venv $home
  # Three equal signs: the public build, which has CUDA, and no local one such as 2.13.0+cpu.
  # shellcheck disable=SC2086 # PIP_ARGS are several words
  $home/bin/pip install --quiet ${PIP_ARGS:-} "torch===2.13.0"
  # shellcheck disable=SC2086
  $home/bin/pip install --quiet ${PIP_ARGS:-} -c constraints.txt -e ".[dev]"
  touch $home/.installed
fi
# The headers of CUDA come with Triton.
include=$($home/bin/python -c 'import pathlib, triton; print(pathlib.Path(triton.__file__).parent / "backends/nvidia/include")')
gcc -shared -fPIC -w -Wl,-soname,libcuda.so.1 -I"$include" tests/rehearsal/device.c -o $home/libcuda.so.1 -ldl
WEFT_REHEARSAL=1 LD_PRELOAD="$PWD/$home/libcuda.so.1" TRITON_LIBCUDA_PATH="$PWD/$home" \
  $home/bin/python -m pytest -n 0 -m rehearsal "$@" tests/rehearsal
TRITON_INTERPRET=1 $home/bin/python -m pytest -n 0 -m rehearsal tests/rehearsal/test_interpreted.py
