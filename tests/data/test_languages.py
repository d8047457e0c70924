from dataclasses import replace

import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.language_grids import chosen_languages, require_every_label, select_languages
from adiabat.data.records import LanguageGridSet


def grid() -> LanguageGridSet:
    premises = tuple({language: f"{language} {number}" for language in ("ar", "de", "en")} for number in range(2))
    hypotheses = tuple({language: f"{language} so {number}" for language in ("ar", "de", "en")} for number in range(2))
    return LanguageGridSet("pairs", ("ar", "de", "en"), ("entailment", "neutral"), premises, hypotheses)


def test_all_languages_are_taken_sorted_where_none_is_asked_for():
    assert chosen_languages([], {"en", "de"}, source="here") == ("de", "en")


def test_languages_are_taken_in_the_order_asked_for_and_each_once():
    assert chosen_languages(["en", "ar", "en"], ["ar", "de", "en"], source="here") == ("en", "ar")


def test_unknown_languages_are_counted_and_near_ones_offered():
    with pytest.raises(ConfigError, match=r"^languages must be of here \(de, en\), got da \(did you mean de\?\); name others, or none to"):
        chosen_languages(["da", "en"], ["en", "de"], source="here")
    asked = [f"q{letter}" for letter in "abcdefghijkl"]
    with pytest.raises(ConfigError, match=r"got 12 others: qa; qb; .*; qj; and 2 more; name others"):
        chosen_languages(asked, ["en", "de"], source="here")


def test_languages_are_left_out_of_a_grid_of_sentence_pairs():
    kept = select_languages(grid(), ["en", "ar"])
    assert (kept.languages, kept.labels, kept.name) == (("en", "ar"), grid().labels, "pairs")
    assert [list(texts) for texts in (*kept.premises, *kept.hypotheses)] == [["en", "ar"]] * 4
    assert (kept.premises[1]["ar"], kept.hypotheses[0]["en"]) == ("ar 1", "en so 0")
    assert select_languages(grid(), []) == grid()


def test_a_language_that_not_every_sentence_pair_has_is_refused():
    with pytest.raises(
        ConfigError, match=r"languages must be of pairs, in which every sentence pair is \(ar, de, en\), got zh; name others"
    ):
        select_languages(grid(), ["de", "zh"])


def test_an_incomplete_language_that_is_asked_for_is_refused_with_the_rows_that_lack_it():
    partial = replace(grid(), incomplete={"zh": "g.jsonl:4 and 2 more rows", "fr": "g.jsonl:9"})
    with pytest.raises(
        ConfigError, match=r"got zh \(missing in g\.jsonl:4 and 2 more rows\); complete these rows, name others, or none to"
    ):
        select_languages(partial, ["de", "zh"])
    with pytest.raises(ConfigError, match=r"got da \(did you mean de or ar\?\); name others"):
        select_languages(partial, ["da"])


def test_nothing_is_said_of_other_languages_where_some_are_named():
    partial = replace(grid(), incomplete={"zh": "g.jsonl:4"})
    assert select_languages(partial, []).notes == partial.notes != ()
    assert select_languages(partial, ["de"]).notes == ()


def test_sentence_pairs_of_every_label_are_needed():
    with pytest.raises(
        DataError,
        match=r"^g\.jsonl must have sentence pairs of every label \(entailment, neutral, contradiction\), got none of contradiction; add",
    ):
        require_every_label(grid(), source="g.jsonl")
    with pytest.raises(DataError, match="got none of entailment and contradiction; add"):
        require_every_label(replace(grid(), labels=("neutral", "neutral")), source="g.jsonl")
    require_every_label(replace(grid(), labels=("contradiction", "neutral", "entailment")), source="g.jsonl")
