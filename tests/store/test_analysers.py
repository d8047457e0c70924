"""Words of many scripts, and their stems as Snowball cuts them."""

import sys

import pytest
import Stemmer

from adiabat.core.errors import ConfigError, MissingDependencyError
from adiabat.store.analysers import analyser_of, stop_words, words
from tests.refused import refused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop_me NOW 42!", ["don", "t", "stop_me", "now", "42"]),
        ("Straße ÉCOLE", ["strasse", "école"]),
        ("e\u0301cole", ["école"]),
        ("ﬁne ｆｕｌｌ", ["fine", "full"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("القطة، السوداء", ["القطة", "السوداء"]),
        ("東京都 に", ["東", "京", "都", "東京", "京都", "に"]),
        ("abc東京xyz", ["abc", "東", "京", "東京", "xyz"]),
        ("ไทย", ["ไ", "ท", "ย", "ไท", "ทย"]),
        ("🧭 \u0301", []),
        ("_ ... __", ["_", "__"]),
        ("", []),
    ],
)
def test_words_of_many_scripts(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # Of three pairs the documents hold one, which is enough.
        ("東京都に", ["東京", "京都", "都に"]),
        # Of "買車" they hold the characters alone.
        ("買車", ["買", "車"]),
        ("水", ["水"]),
        ("水 東京", ["水", "東京"]),
        ("Cat 東京", ["cat", "東京"]),
        ("ไม", ["ไ", "ม"]),
    ],
)
def test_a_query_is_asked_by_pairs_and_a_run_of_which_no_pair_is_known_by_characters(
    query: str, expected: list[str]
) -> None:
    assert words(query, {"東京", "買", "車", "水", "ไ"}) == expected
    assert analyser_of("english")(query, {"東京", "買", "車", "水", "ไ"}) == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        # Porter 1980: "generalizations" loses its endings one by one; "the" and "of" are of Lucene's list.
        ("english", "The Generalizations of relational ponies", ["gener", "relat", "poni"]),
        ("german", "Die Häuser und Straßen", ["haus", "strass"]),
        ("turkish", "kitaplar", ["kitap"]),
        ("english", "東京 cats", ["東", "京", "東京", "cat"]),
        ("english", "...", []),
    ],
)
def test_stems_of_a_language(language: str, text: str, expected: list[str]) -> None:
    assert analyser_of(language)(text) == expected


def test_english_goes_by_porter_and_the_list_of_lucene_as_anserini_does() -> None:
    stems = Stemmer.Stemmer("porter").stemWords(["skies", "dying", "happily"])
    assert analyser_of("english")("skies dying happily") == stems
    assert analyser_of("english")("skies") != Stemmer.Stemmer("english").stemWords(["skies"])
    assert len(stop_words("english")) == 33


def test_every_language_that_is_offered_has_stems() -> None:
    with pytest.raises(ConfigError) as caught:
        analyser_of("xx")
    offered = str(caught.value).partition("choose one of ")[2].split(", ")
    assert {"english", "german", "arabic", "hindi"} <= set(offered)
    assert "porter" not in offered
    for language in offered:
        assert analyser_of(language)("abc") != []


def test_a_language_with_a_slip_is_told_the_near_one() -> None:
    with refused(ConfigError, "the language of stems must be ", "got englsh; did you mean english?"):
        analyser_of("englsh")


def test_an_absent_package_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with refused(MissingDependencyError, "package PyStemmer; ", "'adiabat[stemming]'"):
        analyser_of("english")
