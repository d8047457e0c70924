import pytest

from adiabat.profiling.text_languages import MIN_PROBABILITY, count_languages, installed_identifier, script_of

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
    found = count_languages("document", ["שלום", "hello", "shalom"], texts=3, identifier=installed_identifier())
    assert (found.identified_by, found.languages, found.unsure) == (None, (), 0)
    assert found.scripts == (("Latin", 2), ("Hebrew", 1))


def test_languages_that_the_data_names_are_not_guessed():
    found = count_languages("query", ["x" * 90], texts=3, identifier=("peer", pytest.fail), known={"fr": 1, "sw": 2})
    assert (found.identified_by, found.languages) == ("the data", (("sw", 2), ("fr", 1)))


def test_the_installed_identifier_knows_plain_sentences():
    pytest.importorskip("py3langid")
    found = installed_identifier()
    assert found is not None
    name, identify = found
    assert name.startswith("py3langid ")
    assert {code: identify(text)[0] for code, text in SENTENCES.items()} == {code: code for code in SENTENCES}
    assert all(MIN_PROBABILITY <= identify(text)[1] <= 1 for text in SENTENCES.values())
    assert all(identify(text)[1] < MIN_PROBABILITY for text in ("d1234", "E = mc^2", "aspirin", ""))
