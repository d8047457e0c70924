from dataclasses import replace

import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.language_grids import chosen_languages, require_every_label, select_languages
from adiabat.data.records import LanguageGridSet


def grid() -> LanguageGridSet:
    premises = tuple({language: f"{language} {number}" for language in ("ar", "de", "en")} for number in range(2))
    hypotheses = tuple({language: f"{language} so {number}" for language in ("ar", "de", "en")} for number in range(2))
    return LanguageGridSet("pairs", ("ar", "de", "en"), ("entailment", "neutral"), premises, hypotheses)


def test_languages_are_taken_in_the_order_asked_for_and_each_once():
    assert chosen_languages(["en", "ar", "en"], ["ar", "de", "en"], source="here") == ("en", "ar")
    assert chosen_languages([], {"en", "de"}, source="here") == ("de", "en")


def test_languages_are_left_out_of_a_grid_of_sentence_pairs():
    kept = select_languages(grid(), ["en", "ar"])
    assert (kept.languages, kept.labels, kept.name) == (("en", "ar"), grid().labels, "pairs")
    assert [list(texts) for texts in (*kept.premises, *kept.hypotheses)] == [["en", "ar"]] * 4
    assert (kept.premises[1]["ar"], kept.hypotheses[0]["en"]) == ("ar 1", "en so 0")
    assert select_languages(grid(), []) == grid()


def test_nothing_is_said_of_other_languages_where_some_are_named():
    partial = replace(grid(), incomplete={"zh": "g.jsonl:4"})
    assert select_languages(partial, []).notes == partial.notes != ()
    assert select_languages(partial, ["de"]).notes == ()


@pytest.mark.parametrize(
    ("languages", "facts"),
    [
        (["de", "zh"], ["pairs, in which every sentence pair is (ar, de, en), got zh (missing in g.jsonl:4)", "complete these rows"]),
        (["da"], ["got da (did you mean de or ar?); name others"]),
        ([f"q{letter}" for letter in "abcdefghijkl"], ["got 12 others: qa", "; qj; and 2 more; name others"]),
    ],
)
def test_unknown_languages_are_refused_with_near_ones(languages: list[str], facts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        select_languages(replace(grid(), incomplete={"zh": "g.jsonl:4"}), languages)
    assert all(fact in str(caught.value) for fact in facts), caught.value


def test_every_label_is_needed() -> None:
    with pytest.raises(DataError, match=r"^g\.jsonl must have sentence pairs of every label .*, got none of contradiction; add"):
        require_every_label(grid(), source="g.jsonl")
    require_every_label(replace(grid(), labels=("contradiction", "neutral", "entailment")), source="g.jsonl")
