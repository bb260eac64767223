"""The fixtures of the runtime, on which extensions are built."""

from ..runtime.conftest import *  # noqa: F403 - its __all__ is what tests of extensions use
