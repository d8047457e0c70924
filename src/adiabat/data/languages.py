"""Which of a data set's languages are taken."""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import replace

from adiabat.data.records import LanguageGridSet
from adiabat.errors import ConfigError, several


def chosen_languages(wanted: Sequence[str], present: Collection[str], *, source: str) -> tuple[str, ...]:
    """Check the languages that are asked for.

    Args:
        wanted: Asked for; empty takes all, sorted.
        present: Those that can be had.
        source: Where, and what for, such as ``xnli, in all of whose pairs they are``.

    Returns:
        Each once, in the order asked for.

    Raises:
        ConfigError: If some are not there; they are counted, the first ten named, each with near ones.
    """
    if absent := [language for language in dict.fromkeys(wanted) if language not in present]:
        every = ", ".join(sorted(present))
        phrases = (f"{language}{_near(language, present)}" for language in absent)
        raise ConfigError(f"languages must be of {source} ({every}), got {several(phrases, of='others')}; name others, or none to take all")
    return tuple(dict.fromkeys(wanted)) or tuple(sorted(present))


def in_languages(grid: LanguageGridSet, languages: Sequence[str]) -> LanguageGridSet:
    """Leave languages out of a grid of sentence pairs.

    Args:
        grid: As read, in the languages that all pairs have.
        languages: To be kept; empty keeps all.

    Returns:
        The same pairs.

    Raises:
        ConfigError: As `chosen_languages`.
    """
    kept = chosen_languages(languages, grid.languages, source=f"{grid.name}, in which every sentence pair is")
    premises, hypotheses = (
        tuple({language: texts[language] for language in kept} for texts in side) for side in (grid.premises, grid.hypotheses)
    )
    return replace(grid, languages=kept, premises=premises, hypotheses=hypotheses)


def _near(language: str, present: Collection[str]) -> str:
    # Codes have two letters: one in common is near enough to be worth a hint.
    near = difflib.get_close_matches(language, sorted(present), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
