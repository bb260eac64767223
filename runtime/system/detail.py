"""Lines of a log that only some readers ask for."""


class Detail(str):
    """A line of the log that says how, not what: such as the kernels that were chosen.

    The command line prints it with `--verbose` only.
    """

    __slots__ = ()
