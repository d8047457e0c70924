"""Progress of long work: notes for the user, and how far it is."""

from collections.abc import Callable
from dataclasses import dataclass


def ignored(*values: object) -> None:
    """Take anything, and do nothing: what a callback does that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Two callbacks: one takes notes, the other a label, the amount done and the total."""

    note: Callable[[str], None] = ignored
    progress: Callable[[str, int, int], None] = ignored

    def under(self, title: str, *, note: Callable[[str], None]) -> "Watch":
        """The same callbacks for a part of the work, whose title stands before its labels."""
        return Watch(note, lambda label, done, total: self.progress(f"{title}: {label}", done, total))


SILENT = Watch()


def once(note: Callable[[str], None]) -> Callable[[str], None]:
    """Pass each note on only once, because many runs repeat their notes."""
    former = set[str]()

    def say(sentence: str) -> None:
        if sentence not in former:
            former.add(sentence)
            note(sentence)

    return say
