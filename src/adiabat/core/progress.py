"""What long work tells its caller: sentences worth reading, and how far it is."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Watch:
    """Two functions that long work calls: with a sentence, and with what is being done, how much of it is done and how much there is."""

    note: Callable[[str], None] = lambda sentence: None
    progress: Callable[[str, int, int], None] = lambda label, done, total: None

    def under(self, title: str, *, note: Callable[[str], None]) -> "Watch":
        """For a part of the work."""
        return Watch(note, lambda label, done, total: self.progress(f"{title}: {label}", done, total))


SILENT = Watch()


def once(note: Callable[[str], None]) -> Callable[[str], None]:
    """Say each sentence once: what many runs have to say is no news the second time."""
    former = set[str]()

    def say(sentence: str) -> None:
        if sentence not in former:
            former.add(sentence)
            note(sentence)

    return say
