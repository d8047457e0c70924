"""From a text to the words that BM25 matches: whole words, or stems.

A word is a run of letters, digits, underscores and combining marks, after Unicode's NFKC and case folding. In
scripts without spaces (Han, kana, Thai, Lao, Burmese, Khmer) the words of a document are all characters and
all pairs of neighbours. The words of a query are its pairs, or its characters if the documents have none of
the pairs, as for a single character.

With stemming, the stop words in bm25s's list for the language are dropped first, and the others are stemmed
by its Snowball algorithm. English uses Porter's first algorithm and the 33 stop words of Lucene, as in
Anserini and so in the published BM25 results on BEIR.
"""

import re
import unicodedata
from collections.abc import Container, Iterable
from difflib import get_close_matches
from functools import cache
from typing import Any, Protocol, runtime_checkable

from adiabat.core.errors import ConfigError, MissingDependencyError, reraise_unrelated


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
"""Algorithms that are not named after their language."""
_NO_LANGUAGES = frozenset(("porter", "dutch_porter"))
_STOP_WORD_LISTS = {"english": "EN"}
"""Lists of bm25s that are not named after their language."""


def words(text: str, known: Container[str] | None = None) -> list[str]:
    """The words of a text in order, repeats included, by the rule of the module's first lines.

    Args:
        known: The words of all documents if the text is a query; None for a document.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    result: list[str] = []
    for run in _word().findall(unicodedata.normalize("NFKC", text).casefold()):
        if run.isascii():
            result.append(run)
            continue
        # Splitting by a group returns the text between matches at even indices, and the matches at odd ones.
        for index, piece in enumerate(SPACELESS.split(run)):
            result.extend(_spaceless(piece, known) if index % 2 else filter(None, [piece]))
    return result


@cache
def _word() -> re.Pattern[str]:
    """Letters, digits and the marks on them: the class of letters alone would cut a Hindi word at each of its
    vowel signs.
    """
    marks = "".join(
        chr(code) for code in range(_LAST_MARK) if unicodedata.category(chr(code)).startswith("M")
    )
    return re.compile(f"\\w[\\w{marks}]*")


def _spaceless(run: str, known: Container[str] | None) -> list[str]:
    """Words of a run without spaces."""
    pairs = [run[index : index + 2] for index in range(len(run) - 1)]
    if known is None:
        return [*run, *pairs]
    # Use only pairs if they match: with single characters added, Thai questions of XQuAD found their
    # paragraphs less well (LOG.md).
    return pairs if any(pair in known for pair in pairs) else list(run)


def analyser_of(stemmer: str | None) -> Analyser:
    """The analyser of a language, such as ``english``, which stems words; None keeps whole words."""
    if stemmer is None:
        return words
    algorithms = _snowball()
    if stemmer not in (languages := _languages(algorithms)):
        near = get_close_matches(stemmer, languages, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(languages)}"
        raise ConfigError(f"the language of stems must be one that Snowball knows, got {stemmer}; {remedy}")
    stems = algorithms.Stemmer(_ALGORITHMS.get(stemmer, stemmer))
    dropped = stop_words(stemmer)

    def analyse(text: str, known: Container[str] | None = None) -> list[str]:
        cut: list[str] = stems.stemWords([word for word in words(text, known) if word not in dropped])
        return cut

    return analyse


def stop_words(language: str) -> frozenset[str]:
    """Words that are dropped before stemming; none if bm25s lists none."""
    from adiabat.store.bm25s_without_jax import stopwords

    listed: Iterable[str] = getattr(
        stopwords, f"STOPWORDS_{_STOP_WORD_LISTS.get(language, language.upper())}", ()
    )
    # An apostrophe splits an entry into two, neither of which is the stop word.
    return frozenset(split[0] for split in map(words, listed) if len(split) == 1)


def _snowball() -> Any:
    """The library of stemmers, which is optional."""
    try:
        import Stemmer  # type: ignore[import-not-found]
    except ImportError as error:
        reraise_unrelated(error)
        raise MissingDependencyError(
            "PyStemmer", extra="stemming", purpose="BM25 over the stems of words"
        ) from error
    return Stemmer


def _languages(algorithms: Any) -> list[str]:
    """Languages that can be stemmed; two of Snowball's names are older algorithms."""
    return sorted(set(algorithms.algorithms()) - _NO_LANGUAGES)
