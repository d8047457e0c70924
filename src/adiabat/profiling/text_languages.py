"""Languages and scripts of texts.

Scripts come from the Unicode names of letters and are certain. Languages are identified by py3langid where it is installed (extra
``languages``), and are guesses: short texts say too little, and names, formulas and code belong to no language.
"""

import importlib.util
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version

from adiabat.profiling.profile_record import Languages, Role

SAMPLED_CHARACTERS = 300
"""First characters of a text by which its language is identified: the sample of a data set of books must fit into memory."""

MIN_PROBABILITY = 0.5
"""Below this a text counts as unsure. Among texts in 20 languages (XNLI, XQuAD, TyDi QA) that py3langid 0.4 identifies with more, 97.8 %
are right below 20 letters and 99.5 % above; among English headlines, two in three of which stay unsure, 97.7 %. A higher bar makes fewer
errors but biases the shares: more texts stay unsure in languages that have near relatives."""

Identifier = Callable[[str], tuple[str, float]]
"""Text to the code of its language and the probability of it."""

_NO_SCRIPT = "none"
_NAME_ENDS = ("LETTER", "SYLLABLE", "SYLLABICS", "CHARACTER", "CAPITAL", "SMALL", "UNIFIED", "COMPATIBILITY", "IDEOGRAPH", "SIGN", "VOWEL")
"""Words that follow the script in the name of a letter: ``LATIN`` SMALL LETTER A, ``CJK`` UNIFIED IDEOGRAPH-4E00."""


def script_of(text: str) -> str:
    """The script of most of a text's letters.

    A text with kana is Japanese, whose ideographs do not make it Chinese: kana and Han together are ``Han and kana``.
    """
    if text.isascii():
        return "Latin" if any(map(str.isalpha, text)) else _NO_SCRIPT
    counts: Counter[str] = Counter(filter(None, map(_script_of_letter, unicodedata.normalize("NFKC", text))))
    kana = counts["Hiragana"] + counts["Katakana"]
    if kana and counts["Han"]:
        counts["Han and kana"] = kana + counts["Han"]
    return min(counts, key=lambda script: (-counts[script], script), default=_NO_SCRIPT) if counts.total() else _NO_SCRIPT


@lru_cache(maxsize=1 << 16)
def _script_of_letter(letter: str) -> str:
    """Script of a letter, "" for characters that are no letters, such as digits, marks and punctuation, or whose name has no script."""
    words = unicodedata.name(letter, "").split() if letter.isalpha() else []
    end = next((index for index, word in enumerate(words) if word.partition("-")[0] in _NAME_ENDS), 0)
    name = " ".join(words[:end])
    return {"": "", "MODIFIER": "", "CJK": "Han"}.get(name, name.title())


def installed_identifier() -> tuple[str, Identifier] | None:
    """Name with version, and function, of the installed identifier; None without the extra ``languages``."""
    if importlib.util.find_spec("py3langid") is None:
        return None
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    classify: Identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True).classify
    return f"py3langid {version('py3langid')}", classify


def count_languages(
    role: Role, sample: Sequence[str], *, texts: int, identifier: tuple[str, Identifier] | None, known: Mapping[str, int] | None = None
) -> Languages:
    """Count languages and scripts; languages that the data names (`known`) are not identified again."""
    scripts = Counter(map(script_of, sample))
    languages: Counter[str] = Counter(known or {})
    name = "the data" if languages else None
    unsure = 0
    if not languages and identifier is not None:
        name, identify = identifier
        for code, probability in map(identify, sample):
            if probability >= MIN_PROBABILITY:
                languages[code] += 1
            else:
                unsure += 1
    return Languages(role, name, len(sample), texts, _most_frequent_first(languages), unsure, _most_frequent_first(scripts))


def _most_frequent_first(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
