"""How fast slices use the time of their cards, found by looking twice."""

from collections.abc import Sequence

from hami_py.cli.overview import Busy
from hami_py.model import SliceInfo


class Pace:
    """What one who watches has seen last."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], float] = {}
        self._at = 0.0

    def since_last(self, slices: Sequence[SliceInfo], now: float) -> Busy:
        """Percent of each card's time that each slice had since the last look.

        Args:
            slices: as they were seen.
            now: when, in seconds of any clock that only goes on.

        Returns:
            Nothing for what is seen for the first time.
        """
        before, elapsed = self._seen, now - self._at
        self._seen = {
            (slice_.id, card.uuid): card.engine_time for slice_ in slices for card in slice_.cards
        }
        self._at = now
        # What a process had that ends at this instant may for one look be counted in neither place.
        return {
            key: max(0.0, time - before[key]) / elapsed * 100
            for key, time in self._seen.items()
            if key in before and elapsed > 0
        }
