"""What a maker leaves out, counted by the reason."""

from collections import Counter

from adiabat.makers.writing import Output


class Tally:
    """Counts of what was taken and what was left out."""

    def __init__(self, things: str) -> None:
        """Begin at zero."""
        self._things = things
        self._total = 0
        self._dropped: Counter[str] = Counter()

    def take(self) -> None:
        """Count one that is looked at."""
        self._total += 1

    def drop(self, reason: str) -> None:
        """Count one of those looked at as left out."""
        self._dropped[reason] += 1

    def tell(self, output: Output) -> None:
        """Write a note for each reason."""
        for reason, count in self._dropped.items():
            output.note(f"{count:,} of {self._total:,} {self._things} left out: {reason}")
