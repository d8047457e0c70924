"""In which languages and scripts texts are written.

Scripts come from the Unicode names of letters and are certain. Languages are told by py3langid where it is installed (extra
``languages``), and are guesses: short texts say too little, and names, formulas and code belong to no language.
"""

import importlib.util
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version

from adiabat.profiling.profile_record import Languages, Role

SEEN_CHARACTERS = 300
"""Of each text; more tells nothing new about its language, and the sample of a data set of books must fit into memory."""

LEAST_PROBABILITY = 0.5
"""Below this a text counts as unsure. Of texts in 20 languages (XNLI, XQuAD, TyDi QA) that py3langid 0.4 tells with more, 97.8 % are right
below 20 letters and 99.5 % above; of English headlines, of which it leaves two in three unsure, 97.7 %. A higher bar is safer text by text,
but bends the shares: it leaves more unsure in languages that have near relatives."""

Identifier = Callable[[str], tuple[str, float]]
"""Text to the code of its language and the probability of it."""

_NONE = "none"
_NAME_ENDS = ("LETTER", "SYLLABLE", "SYLLABICS", "CHARACTER", "CAPITAL", "SMALL", "UNIFIED", "COMPATIBILITY", "IDEOGRAPH", "SIGN", "VOWEL")
"""Words before which the name of a letter's script ends: ``LATIN`` SMALL LETTER A, ``CJK`` UNIFIED IDEOGRAPH-4E00."""


def script_of(text: str) -> str:
    """The script of most of a text's letters.

    A text with kana is Japanese writing, whose ideographs do not make it Chinese: kana and Han together are ``Han and kana``.
    """
    if text.isascii():
        return "Latin" if any(map(str.isalpha, text)) else _NONE
    counts: Counter[str] = Counter(filter(None, map(_script_of_letter, unicodedata.normalize("NFKC", text))))
    kana = counts["Hiragana"] + counts["Katakana"]
    if kana and counts["Han"]:
        counts["Han and kana"] = kana + counts["Han"]
    return min(counts, key=lambda script: (-counts[script], script), default=_NONE) if counts.total() else _NONE


@lru_cache(maxsize=1 << 16)
def _script_of_letter(letter: str) -> str:
    """Nothing for what is no letter, such as digits, marks and punctuation, or bears no script's name."""
    words = unicodedata.name(letter, "").split() if letter.isalpha() else []
    end = next((place for place, word in enumerate(words) if word.partition("-")[0] in _NAME_ENDS), 0)
    name = " ".join(words[:end])
    return {"": "", "MODIFIER": "", "CJK": "Han"}.get(name, name.title())


def installed_identifier() -> tuple[str, Identifier] | None:
    """The identifier of this installation.

    Returns:
        Its name with its version, and the function; None where the extra ``languages`` is not installed.
    """
    if importlib.util.find_spec("py3langid") is None:
        return None
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    classify: Identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True).classify
    return f"py3langid {version('py3langid')}", classify


def told_languages(
    role: Role, sample: Sequence[str], *, texts: int, identifier: tuple[str, Identifier] | None, known: Mapping[str, int] | None = None
) -> Languages:
    """Count languages and scripts.

    Args:
        identifier: Name and function; None tells scripts alone.
    """
    scripts = Counter(map(script_of, sample))
    languages: Counter[str] = Counter(known or {})
    name = "the data" if languages else None
    unsure = 0
    if not languages and identifier is not None:
        name, identify = identifier
        guesses = [_guess(text, identify) for text in sample]
        languages.update(guess for guess in guesses if guess)
        unsure = guesses.count(None)
    return Languages(role, name, len(sample), texts, _most_first(languages), unsure, _most_first(scripts))


def _guess(text: str, identify: Identifier) -> str | None:
    """The language of a text, or None where it cannot be told."""
    code, probability = identify(text)
    return code if probability >= LEAST_PROBABILITY else None


def _most_first(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
