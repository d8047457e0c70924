from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from adiabat.data.records import SIDES
from adiabat.models.embedding_head import EncoderSettings
from adiabat.profiling.text_lengths import (
    MIN_PROBABILITY,
    PERCENTS,
    ModelTokens,
    Sample,
    TokenSample,
    count_languages,
    histogram,
    installed_identifier,
    lengths,
    script_of,
    truncation,
    wilson,
)
from tests.profiling.files import Letters
from tests.tiny import KINDS, Kind, tiny_dual


def test_lengths_by_hand():
    found = lengths("query", "words", np.array([1, 2, 3, 10]), texts=4)
    assert found.mean == 4.0
    assert dict(found.quantiles) == {0: 1, 5: 1, 25: 1, 50: 2, 75: 3, 95: 10, 99: 10, 100: 10}
    assert found.histogram == ((1, 1, 1), (2, 2, 1), (3, 4, 1), (5, 8, 0), (9, 16, 1))


VALUES = some.lists(some.integers(0, 400), min_size=1)


@given(VALUES)
def test_a_quantile_is_the_shortest_length_that_so_many_do_not_exceed(values: list[int]) -> None:
    assert PERCENTS[0] == 0
    for percent, value in lengths("document", "tokens", np.array(values), texts=len(values)).quantiles:
        needed = percent * len(values) / 100
        reached = [one for one in values if sum(other <= one for other in values) >= needed]
        assert value == min(reached), percent


@given(VALUES)
def test_bars_leave_no_gap_and_count_everything(values: list[int]) -> None:
    bars = histogram(np.array(values))
    assert [later[0] for later in bars[1:]] == [bar[1] + 1 for bar in bars[:-1]]
    for shortest, longest, texts in bars:
        assert texts == sum(shortest <= value <= longest for value in values)
    assert sum(texts for *_, texts in bars) == len(values)


def test_what_is_cut_by_hand():
    found = truncation("document", np.array([10, 12, 20, 8]), 10, texts=4)
    assert (found.cut, found.share, found.interval) == (2, 0.5, None)
    assert found.tokens_lost == 12 / 50


@pytest.mark.parametrize(("count", "of"), [(0, 10), (3, 10), (10, 10), (17, 100), (1, 10_000)])
def test_wilson_against_its_defining_equation(count: int, of: int) -> None:
    low, high = wilson(count, of)
    share = count / of
    for bound in (low, high):
        if 0 < bound < 1 - 1e-12:
            assert (share - bound) ** 2 == pytest.approx(1.959963985**2 * bound * (1 - bound) / of)
    assert 0 <= low <= share <= high <= 1


def test_tokens_of_a_short_stream_are_all_counted_and_in_blocks():
    counter = Letters()
    sample = TokenSample("query", counter, 1_000, seed=0)
    for size in range(600):
        sample.add("x" * size)
    assert sample.counts().tolist() == [size + 5 for size in range(600)]
    assert counter.calls == 3
    assert sample.counts().tolist() == [size + 5 for size in range(600)]


def test_a_drawn_sample_is_counted_as_if_each_text_were_counted_when_it_came():
    sample = TokenSample("negative", Letters(), 20, seed=4)
    for size in range(5_000):
        sample.add("x" * size)
    sizes = sample.counts() - 2
    assert len(set(sizes.tolist())) == 20
    assert 1_000 < sizes.mean() < 4_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_models_counts_are_those_of_its_own_tokens_before_the_cut(kind: Kind):
    model, uncut = (
        tiny_dual(kind, settings=EncoderSettings(max_tokens=most, query_prompt="ask: "), shared=False)
        for most in (8, 500)
    )
    tokens, texts = ModelTokens(model), ["a", "", "a longer text than eight tokens", "שלום", "日本"]
    for side in SIDES:
        # An empty text of a tokenizer without special tokens gets a token of padding from the encoder alone.
        counts = [max(1, count) for count in tokens.count(texts, side=side)]
        assert counts == uncut.tower(side).tokenize(texts, side=side).lengths.tolist()
        cut = model.tower(side).tokenize(texts, side=side).lengths.tolist()
        assert cut == [min(8, count) for count in counts]
    assert tokens.limit("query") == tokens.limit("document") == 8
    assert (tokens.name, tokens.count([], side="query")) == ("tiny", [])


def drawn(count: int, size: int, seed: str) -> list[int]:
    sample: Sample[int] = Sample(size, seed=seed)
    for number in range(count):
        if (place := sample.offer()) is not None:
            sample.put(place, number)
    assert sample.offered == count
    return sample.items


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_a_stream_no_longer_than_the_sample_is_kept_whole_and_in_order(count: int):
    assert drawn(count, 5, "s") == list(range(count))


def test_equal_seeds_draw_alike_and_others_do_not():
    assert drawn(500, 10, "one") == drawn(500, 10, "one") != drawn(500, 10, "two")


@pytest.mark.parametrize(("count", "size"), [(12, 1), (12, 4), (12, 11)])
def test_every_item_is_drawn_equally_often(count: int, size: int):
    rounds = 1_500
    times = Counter(item for seed in range(rounds) for item in drawn(count, size, str(seed)))
    share = size / count
    spread = (rounds * share * (1 - share)) ** 0.5
    assert all(abs(times[item] - rounds * share) < 4.5 * spread for item in range(count)), times


def test_few_items_of_a_long_stream_are_inspected():
    sample: Sample[int] = Sample(10, seed="s")
    kept = sum(sample.offer() is not None for _ in range(50_000))
    # 10 (1 + ln 5000) = 95 on average.
    assert 50 < kept < 170


SENTENCES = {
    "en": "The committee will publish its report on the safety of medicines next week.",
    "de": "Der Ausschuss wird seinen Bericht über die Sicherheit von Arzneimitteln veröffentlichen.",
    "fr": "La commission publiera la semaine prochaine son rapport sur la sécurité des médicaments.",
    "ru": "Комитет опубликует свой доклад о безопасности лекарств на следующей неделе.",
    "ar": "ستنشر اللجنة تقريرها عن سلامة الأدوية في الأسبوع المقبل.",
    "zh": "委员会将于下周公布关于药品安全的报告，请大家注意查看相关内容。",
    "ja": "委員会は来週、医薬品の安全性に関する報告書を公表する予定です。",
}


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("plain words", "Latin"),
        ("Größe", "Latin"),
        ("Привет, world!", "Cyrillic"),
        ("שלום עולם", "Hebrew"),
        ("مرحبا بالعالم", "Arabic"),
        ("नमस्ते दुनिया", "Devanagari"),
        ("สวัสดีชาวโลก", "Thai"),
        ("안녕하세요", "Hangul"),
        ("你好世界", "Han"),
        ("東京は日本の首都", "Han and kana"),
        ("カタカナ", "Katakana"),
        ("ﾊﾝｶｸ", "Katakana"),
        ("ＡＢＣ", "Latin"),
        ("Γειά σου", "Greek"),
        ("გამარჯობა", "Georgian"),
        ("ሰላም", "Ethiopic"),
        ("12 + 34 = 46", "none"),
        ("①②③ …", "none"),
        ("", "none"),
        ("aб", "Cyrillic"),
    ],
)
def test_a_text_is_of_the_script_of_most_of_its_letters(text: str, script: str):
    assert script_of(text) == script


def test_languages_are_counted_most_first_and_unsure_ones_apart():
    def identify(text: str) -> tuple[str, float]:
        return text[0] * 2, MIN_PROBABILITY if text[1] == "+" else MIN_PROBABILITY - 0.01

    found = count_languages("query", ["a+", "b+", "b+", "c-"], texts=90, identifier=("peer 1", identify))
    assert found.languages == (("bb", 2), ("aa", 1))
    assert (found.unsure, found.measured, found.texts, found.identified_by) == (1, 4, 90, "peer 1")
    assert found.scripts == (("Latin", 4),)


def test_without_an_identifier_scripts_remain_and_nothing_is_claimed_of_languages(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = count_languages(
        "document", ["שלום", "hello", "shalom"], texts=3, identifier=installed_identifier()
    )
    assert (found.identified_by, found.languages, found.unsure) == (None, (), 0)
    assert found.scripts == (("Latin", 2), ("Hebrew", 1))


def test_languages_that_the_data_names_are_not_guessed():
    found = count_languages(
        "query", ["x" * 90], texts=3, identifier=("peer", pytest.fail), known={"fr": 1, "sw": 2}
    )
    assert (found.identified_by, found.languages) == ("the data", (("sw", 2), ("fr", 1)))


def test_the_installed_identifier_knows_plain_sentences():
    pytest.importorskip("py3langid")
    name, identify = installed_identifier()
    assert name.startswith("py3langid ")
    assert {code: identify(text)[0] for code, text in SENTENCES.items()} == {code: code for code in SENTENCES}
    assert all(MIN_PROBABILITY <= identify(text)[1] <= 1 for text in SENTENCES.values())
    assert all(identify(text)[1] < MIN_PROBABILITY for text in ("d1234", "E = mc^2", "aspirin", ""))
