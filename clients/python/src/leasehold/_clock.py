"""The clock that determines how long leases are valid."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Clock:
    """Measures elapsed time in nanoseconds, including time while the machine is suspended.

    The monotonic clock stops while the machine is suspended, and the wall clock can be set. So
    between two readings, the clock advances by the larger of the two differences. If it advances
    too fast, validity ends early, which is safe. It is never slower than the monotonic clock.
    """

    def __init__(
        self,
        monotonic: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._lock = threading.Lock()
        self._last = (monotonic(), wall())
        self._elapsed = 0

    def now(self) -> int:
        with self._lock:
            now = (self._monotonic(), self._wall())
            self._elapsed += max(now[0] - self._last[0], now[1] - self._last[1], 0)
            self._last = now
            return self._elapsed
