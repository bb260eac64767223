"""Signals that ask a program to stop."""

from __future__ import annotations

import signal


def stopping_signals() -> tuple[signal.Signals, ...]:
    """Return the signals at which a training saves and stops: SIGINT, SIGTERM and SIGHUP.

    SIGHUP comes when a terminal is closed or a connection ends.  It is left out where it does not
    exist, and where it is ignored, as by a program that nohup has started.
    """
    hangup = getattr(signal, "SIGHUP", None)
    ignored = hangup is None or signal.getsignal(hangup) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if ignored else (hangup,)))
