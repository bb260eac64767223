"""Settings of the GPU tests: cuBLAS reads its workspace once, before the first test."""

from __future__ import annotations

import os

from weft.runtime.train.device import CUBLAS, WORKSPACE

from ..runtime.conftest import toy_run

__all__ = ["toy_run"]

os.environ.setdefault(CUBLAS, WORKSPACE)
