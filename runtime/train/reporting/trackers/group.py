"""All trackers of a run; one that fails is reported once and does not stop the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .tracker import TrackedRun, Tracker, TrackerSettings

Warn = Callable[[str], None]


class Trackers:
    """Logs to every tracker of a run."""

    def __init__(self, settings: Sequence[TrackerSettings], run: TrackedRun, warn: Warn) -> None:
        """Open the trackers.

        Args:
            settings: the trackers.
            run: the run that is tracked.
            warn: called once for each tracker that fails.
        """
        self._warn = warn
        self._open: dict[int, tuple[str, Tracker]] = {}
        self._warned: set[int] = set()
        for number, tracker in enumerate(settings):
            self._guarded(number, tracker.type, self._opening(number, tracker, run))

    def _opening(
        self, number: int, tracker: TrackerSettings, run: TrackedRun
    ) -> Callable[[], None]:
        def opening() -> None:
            self._open[number] = tracker.type, tracker.open(run)

        return opening

    def _guarded(self, number: int, name: str, act: Callable[[], None]) -> None:
        """Call a tracker; warn if this is its first error."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever a service does, training continues
            if number not in self._warned:
                self._warned.add(number)
                text = str(error).partition("\n")[0]
                self._warn(
                    f"the tracker '{name}' failed, and may lack values from now on: "
                    f"{type(error).__name__}: {text:.200}"
                )

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for number, (name, tracker) in list(self._open.items()):
            self._guarded(number, name, lambda tracker=tracker: act(tracker))  # type: ignore[misc]

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Log numbers by name, such as `valid/nll`."""
        if values:
            self._each(lambda tracker: tracker.log(values, update))

    def event(self, event: Mapping[str, object]) -> None:
        """Log the numbers of an event of the history as `TYPE/NAME`.

        Args:
            event: has the keys `type` and `update`, as `History.write` takes it.
        """
        numbers = {
            f"{event['type']}/{name}": value
            for name, value in event.items()
            if isinstance(value, int | float) and name != "update"
        }
        self.log(numbers, int(str(event["update"])))

    def text(self, name: str, text: str, update: int) -> None:
        """Log a text."""
        self._each(lambda tracker: tracker.text(name, text, update))

    @property
    def take_images(self) -> bool:
        """Whether a tracker takes images; one of a plug-in may lack the method."""
        return any(hasattr(tracker, "image") for _, tracker in self._open.values())

    def image(self, name: str, path: Path, update: int) -> None:
        """Log a PNG file to the trackers that take images."""
        self._each(lambda t: t.image(name, path, update) if hasattr(t, "image") else None)

    def close(self) -> None:
        """Close every tracker."""
        self._each(lambda tracker: tracker.close())
        self._open.clear()
