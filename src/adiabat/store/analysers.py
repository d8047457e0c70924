"""From a text to the words that BM25 goes by: as they stand, or cut to their stems.

A word is a run of letters, digits, underscores and combining marks, after Unicode's NFKC and case folding. Scripts that are written without
spaces (Han, kana, Thai, Lao, Burmese, Khmer) give a document every character and every pair of neighbours instead. A query is asked by its
pairs; a run of which the documents hold no pair, as one character by itself, by its characters. No word is left out, none is stemmed.

With the stems of a language, words so common in it that they say nothing are left out first, as far as bm25s lists them, and the others cut
by its Snowball algorithm. English has Porter's first algorithm and the 33 words of Lucene: so do Anserini's, and with that the published
figures of BM25 on BEIR.
"""

import re
import unicodedata
from collections.abc import Container, Iterable
from difflib import get_close_matches
from functools import cache
from typing import Any, Protocol, runtime_checkable

from adiabat.core.errors import ConfigError, MissingDependencyError


@runtime_checkable
class Analyser(Protocol):
    """Gives the words of a text."""

    def __call__(self, text: str, known: Container[str] | None = None) -> list[str]:
        """See `words`."""


_ASCII_WORD = re.compile(r"\w+", re.ASCII)
SPACELESS = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]+)"
)
"""Thai and Lao, Burmese, Khmer, kana, Han."""
_LAST_MARK = 0x20000

_ALGORITHMS = {"english": "porter"}
"""Of languages whose algorithm does not go by the language's name."""
_NO_LANGUAGES = frozenset(("porter", "dutch_porter"))
_COMMON_WORDS = {"english": "EN"}
"""Likewise, for bm25s's lists of words to leave out."""


def words(text: str, known: Container[str] | None = None) -> list[str]:
    """The words of a text, by the rule of the module's first lines.

    Args:
        known: The words of all documents, where the text is a query; None where it is a document.

    Returns:
        In order, repeats included; empty where there is no letter, digit or underscore.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    found: list[str] = []
    for run in _word().findall(unicodedata.normalize("NFKC", text).casefold()):
        if run.isascii():
            found.append(run)
            continue
        for place, part in enumerate(SPACELESS.split(run)):
            found.extend(_spaceless(part, known) if place % 2 else filter(None, [part]))
    return found


@cache
def _word() -> re.Pattern[str]:
    """Letters, digits and the marks on them: Python's own class of letters would cut a Hindi word at each of its vowel signs."""
    marks = "".join(chr(code) for code in range(_LAST_MARK) if unicodedata.category(chr(code)).startswith("M"))
    return re.compile(f"\\w[\\w{marks}]*")


def _spaceless(run: str, known: Container[str] | None) -> list[str]:
    """Words of a run without spaces.

    Queries go by pairs where they can: asked by characters too, Thai questions of XQuAD found their paragraphs less well (LOG.md).
    """
    pairs = [run[place : place + 2] for place in range(len(run) - 1)]
    if known is None:
        return [*run, *pairs]
    return pairs if any(pair in known for pair in pairs) else list(run)


def analyser_of(stemmer: str | None) -> Analyser:
    """How texts become words.

    Args:
        stemmer: Language whose words are cut to their stems, such as ``english``; None leaves words as they stand.
    """
    if stemmer is None:
        return words
    algorithms = _snowball()
    if stemmer not in (languages := _languages(algorithms)):
        near = get_close_matches(stemmer, languages, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(languages)}"
        raise ConfigError(f"the language of stems must be one that Snowball knows, got {stemmer}; {remedy}")
    stems = algorithms.Stemmer(_ALGORITHMS.get(stemmer, stemmer))
    common = common_words(stemmer)

    def analyse(text: str, known: Container[str] | None = None) -> list[str]:
        cut: list[str] = stems.stemWords([word for word in words(text, known) if word not in common])
        return cut

    return analyse


def common_words(language: str) -> frozenset[str]:
    """Words that are left out before stems are taken.

    Returns:
        As `words` gives them; empty where bm25s lists none.
    """
    from bm25s import stopwords

    listed: Iterable[str] = getattr(stopwords, f"STOPWORDS_{_COMMON_WORDS.get(language, language.upper())}", ())
    # What an apostrophe takes apart is not the word of the list.
    return frozenset(found[0] for found in map(words, listed) if len(found) == 1)


def _snowball() -> Any:
    try:
        import Stemmer  # type: ignore[import-not-found]
    except ImportError as error:
        raise MissingDependencyError("PyStemmer", extra="stemming", purpose="BM25 over the stems of words") from error
    return Stemmer


def _languages(algorithms: Any) -> list[str]:
    return sorted(set(algorithms.algorithms()) - _NO_LANGUAGES)
