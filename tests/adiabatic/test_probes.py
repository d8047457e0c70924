import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.adiabatic import probes
from adiabat.adiabatic.drift import written_otherwise
from adiabat.adiabatic.probes import ProbeSet, read_probes
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.provenance import packaged_folder
from tests.commands import lines as write_lines
from tests.packaged import copy_read_by, require_damage_told, script

SOURCES = Path(__file__).resolve().parents[3] / "shared" / "data"
TEXTS = [f"text number {number}" for number in range(20)]
LANGUAGES = {"en", "ar", "es", "fr", "hi", "ru", "sw", "ur", "zh"}
SUBJECTS = ("cs", "math", "cond-mat", "astro-ph and hep", "q-bio", "econ and stat")
FIELDS = {f"arXiv {subject}" for subject in SUBJECTS}


def written(folder: Path, *rows: object, name: str = "mine.jsonl") -> Path:
    write_lines(folder / name, rows)
    return folder / name


def rows_of(texts: list[str] = TEXTS, **more: object) -> list[dict[str, object]]:
    return [{"text": text, **more} for text in texts]


def fault(source: Path | str) -> str:
    with pytest.raises(DataError) as caught:
        read_probes(str(source))
    return str(caught.value)


@pytest.fixture(scope="module")
def maker():
    return script("make_probes")


def test_the_packaged_set_has_forty_texts_of_each_group():
    found = read_probes()
    assert (found.name, len(found), found.notes) == ("default", 680, ())
    assert set(found.groups) == LANGUAGES | FIELDS | {"medical questions", "banking"}
    assert all(found.groups.count(group) == 40 for group in set(found.groups))
    assert all(text == " ".join(text.split()) for text in found.texts)
    assert len(set(found.texts)) == 680
    assert read_probes("default") == found


def test_the_sample_is_a_quarter_of_each_group_of_the_default_probes():
    found, whole = read_probes("sample"), read_probes()
    assert (found.name, len(found)) == ("sample", 170)
    assert {group: found.groups.count(group) for group in found.groups} == dict.fromkeys(whole.groups, 10)
    pairs, of_whole = (set(zip(one.texts, one.groups, strict=True)) for one in (found, whole))
    assert pairs <= of_whole


def test_the_packaged_texts_to_rehearse_are_others_of_the_same_groups():
    found, probes = read_probes("rehearsal"), read_probes()
    assert (found.name, len(found), found.notes) == ("rehearsal", 679, ())
    assert set(found.groups) == set(probes.groups)
    assert not {*found.texts} & {*probes.texts}


@pytest.mark.parametrize(
    ("language", "first", "last"),
    [("ru", "Ѐ", "ӿ"), ("hi", "ऀ", "ॿ"), ("zh", "一", "鿿"), ("ar", "؀", "ۿ"), ("en", "a", "z")],
)
def test_texts_of_a_language_are_written_in_its_script(language, first, last):
    found = read_probes()
    texts = [text for text, group in zip(found.texts, found.groups, strict=True) if group == language]
    assert all(any(first <= sign <= last for sign in text) for text in texts)


def test_the_packaged_file_is_small_and_tells_its_licences():
    folder = packaged_folder("adiabatic")
    assert (folder / "probes.jsonl.zst").stat().st_size < 100_000
    told = (folder / "README.md").read_text(encoding="utf-8")
    for word in ("CC0 1.0", "CC BY 4.0", "MedQuAD", "BANKING77", "TICO-19", "arXiv", *FIELDS):
        assert word in told, word


def test_a_changed_or_missing_packaged_file_is_refused(tmp_path, monkeypatch):
    copy = copy_read_by(probes, "adiabatic", tmp_path / "files", monkeypatch)
    require_damage_told(copy / "probes.jsonl.zst", read_probes)
    require_damage_told(copy / "rehearsal.jsonl.zst", lambda: read_probes("rehearsal"))


def test_a_text_file_is_a_probe_in_each_line_and_its_name_is_the_group(tmp_path):
    path = tmp_path / "Swahili news.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8-sig", newline="\r\n")
    found = read_probes(str(path))
    assert found.texts == TEXTS
    assert (found.name, set(found.groups)) == ("Swahili news", {"Swahili news"})
    packed = tmp_path / "Swahili news.TXT.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_probes(str(packed)) == found


def test_blank_and_unsound_lines_of_a_text_file_are_faults_by_line(tmp_path):
    path = tmp_path / "probes.txt"
    path.write_bytes("\n".join([*TEXTS[:2], "", *TEXTS[2:], "  "]).encode() + b"\n\xff\n")
    message = fault(path)
    assert message.startswith("3 faults: ")
    assert f'{path}:3: "text" must not be empty' in message
    assert f'{path}:22: "text" must not be empty' in message
    assert f"{path}:23 must be UTF-8, got byte 0xff" in message


def test_tables_of_every_form_give_the_same_probes(tmp_path):
    groups = [("en", "fr")[number % 2] for number in range(20)]
    expected = ProbeSet("mine", TEXTS, groups)
    rows = [{"text": text, "group": group} for text, group in zip(TEXTS, groups, strict=True)]
    delimited = {"mine.csv": ",", "mine.tsv": "\t"}
    for name, mark in delimited.items():
        cells = [("text", "group"), *zip(TEXTS, groups, strict=True)]
        (tmp_path / name).write_text("".join(f"{text}{mark}{group}\n" for text, group in cells))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "mine.parquet")
    written(tmp_path, *rows)
    for name in ("mine.jsonl", "mine.parquet", *delimited):
        found = read_probes(str(tmp_path / name))
        assert found == expected
        assert found.sha256 == expected.sha256


@pytest.mark.parametrize("column", ["text", "passage", "content", "abstract"])
def test_the_text_may_go_by_the_names_that_corpora_have_for_it(tmp_path, column):
    path = written(tmp_path, *({"_id": str(number), column: text} for number, text in enumerate(TEXTS)))
    found = read_probes(path)
    assert (found.texts, found.groups) == (TEXTS, ["mine"] * len(TEXTS))


def test_the_address_names_the_column_of_the_text(tmp_path):
    path = written(tmp_path, *({"satz": text, "text": "another"} for text in TEXTS))
    assert (read_probes(f"{path}?text=satz").texts, read_probes(f"{path}?text=satz").name) == (TEXTS, "mine")
    assert 'must have a column "sat", got "satz", "text"' in fault(f"{path}?text=sat")
    with pytest.raises(ConfigError, match="must name no column but text in its address, got query"):
        read_probes(f"{path}?query=satz")


def test_our_own_name_wins_and_two_others_are_asked_about(tmp_path):
    assert read_probes(written(tmp_path, *rows_of(body="another"))).texts == TEXTS
    message = fault(written(tmp_path, *({"body": text, "content": text} for text in TEXTS)))
    assert 'mine.jsonl:1 must have a column "text", got "body", "content"; name the column' in message


@pytest.mark.parametrize("column", ["group", "lang", "language"])
def test_groups_may_be_languages_and_numbers(tmp_path, column):
    assert set(read_probes(written(tmp_path, *rows_of(**{column: "sw"}))).groups) == {"sw"}
    assert set(read_probes(written(tmp_path, *rows_of(**{column: 3}))).groups) == {"3"}
    assert set(read_probes(written(tmp_path, *rows_of(language="sw", group="news"))).groups) == {"news"}


def test_every_faulty_row_is_told_at_once(tmp_path):
    bad = [
        {"text": ""},
        {"text": None},
        {"text": 3},
        {"group": "en"},
        {"text": "good", "group": ["en"]},
        {"text": "good", "lang": " "},
        7,
    ]
    path = written(tmp_path, *rows_of(), *bad)
    message = fault(path)
    assert message.startswith("7 faults: ")
    for told in (
        '21: "text" must not be empty; {}:22: "text" must not be empty; ',
        '23: "text" must be a text, got a number',
        '24 must have a column "text", got "group"',
        '25: "group" must be a text, got a list',
        '26: "lang" must not be empty',
    ):
        assert f"{path}:{told.format(path)}" in message
    assert message.endswith('; name the column of the probes "text"')


def test_a_file_without_a_column_of_texts_is_one_fault(tmp_path):
    path = written(tmp_path, *({"query": text} for text in TEXTS))
    assert f'{path}:1 must have a column "text", got "query"; name the column' in fault(path)


def test_texts_that_come_again_are_left_out_and_counted(tmp_path):
    second = [*rows_of(TEXTS[3:5], group="second"), *rows_of(["last"], group="second")]
    path = written(tmp_path, *rows_of(group="first"), *second)
    found = read_probes(path)
    assert found.texts == [*TEXTS, "last"]
    assert found.groups == ["first"] * 20 + ["second"]
    assert found.notes == ("2 of 23 probes repeated the text of another and were left out",)


def test_fewer_than_twenty_different_texts_are_refused(tmp_path):
    for rows in (rows_of(TEXTS[:19]), rows_of([*TEXTS[:19], TEXTS[0]])):
        told = fault(written(tmp_path, *rows))
        assert "must hold at least 20 different texts, got 19; add some" in told
        assert told.endswith("(default)")
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert "must hold at least 20 different texts, got 0;" in fault(empty)


def test_a_missing_file_offers_near_names(tmp_path):
    (tmp_path / "probes.txt").touch()
    assert f"did you mean {tmp_path / 'probes.txt'}?" in fault(tmp_path / "probe.txt")
    assert "must exist, got no such file" in fault(tmp_path / "other.jsonl")
    (tmp_path / "probes.doc").touch()
    assert "must end in .jsonl, .csv, .tsv" in fault(tmp_path / "probes.doc")


def test_the_digest_tells_texts_groups_and_their_order_apart():
    sets = [
        ProbeSet("s", list(texts), list(groups))
        for texts, groups in (("ab", "xx"), ("ba", "xx"), ("ab", "yx"), ("a", "x"))
    ]
    assert len({each.sha256 for each in sets}) == 4
    assert ProbeSet("other name", ["a", "b"], ["x", "x"], ("a note",)).sha256 == sets[0].sha256
    of_brackets = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    assert ProbeSet("s", [], []).sha256 == of_brackets


def test_texts_are_chosen_by_the_hash_of_their_ids_alone(maker):
    texts = {f"id {number}": f"a  long title &amp;\nits number, {number}" for number in range(100)}
    chosen = maker.fitting_of(texts, 0)
    first = [key.removeprefix("id ") for key in sorted(texts, key=maker.order)[:40]]
    assert chosen == [f"a long title & its number, {number}" for number in first]
    assert maker.fitting_of(dict(reversed(texts.items())), 0) == chosen
    assert len({*chosen, *maker.fitting_of(texts, 1)}) == 80


def test_texts_that_do_not_fit_or_come_again_are_passed_over(maker):
    texts = {f"{name}{number}": "x" * number for name in ("", "again ") for number in range(400)}
    lengths = [len(text) for text in maker.fitting_of(texts, 0)]
    assert len(set(lengths)) == 40
    assert all(25 <= length < 250 for length in lengths)
    with pytest.raises(SystemExit, match="a group must have 40 texts of fitting length, got 1"):
        maker.fitting_of({"a": "x" * 30, "b": "x" * 30, "c": "short"}, 0)


def test_no_sentence_is_taken_in_two_languages(maker, tmp_path):
    rows = [
        {"lang": language, "en": f"an English sentence of some length, {number}", "x": f"{language} {number}"}
        for language in sorted(LANGUAGES - {"en"})
        for number in range(400)
    ]
    found = dict(maker.sentences(written(tmp_path, *rows), 0))
    assert found.keys() == LANGUAGES
    numbers = [text.split()[-1] for texts in found.values() for text in texts]
    assert len(numbers) == len(set(numbers)) == 360
    for language in LANGUAGES - {"en"}:
        assert all(text.startswith(language) for text in found[language])


def test_a_round_has_no_text_of_the_rounds_before_it(maker, monkeypatch):
    rounds = [
        [("a", ["one", "two"]), ("b", ["three"])],
        [("a", ["four", "two"]), ("b", ["one"])],
        [("a", ["four"]), ("b", ["five", "two"])],
    ]
    monkeypatch.setattr(maker, "of_round", lambda source, turn: iter(rounds[turn]))
    assert [maker.groups(SOURCES, turn) for turn in range(3)] == [
        {"a": ["one", "two"], "b": ["three"]},
        {"a": ["four"], "b": []},
        {"a": [], "b": ["five"]},
    ]


@pytest.mark.real
@pytest.mark.skipif(not SOURCES.is_dir(), reason=f"needs the sources of the probes in {SOURCES}")
@pytest.mark.parametrize(("turn", "name"), [(0, "default"), (1, "rehearsal")])
def test_the_packaged_sets_are_what_the_script_makes_of_its_sources(maker, turn, name):
    made = [(text, group) for group, texts in maker.groups(SOURCES, turn).items() for text in texts]
    found = read_probes(name)
    assert made == list(zip(found.texts, found.groups, strict=True))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("A sentence.", "A sentence"),
        ("a title", "a title."),
        ("Is it so ?", "Is it so"),
        ("Wait...", "Wait"),
        ("这些。", "这些"),
        ("رسالة؟", "رسالة"),
        ("है।", "है"),
        ("trailing. ", "trailing"),
        ("3.5", "3.5."),
        (".", ".."),
        ("(a remark)", "(a remark)."),
    ],
)
def test_the_end_of_a_text_is_written_otherwise(text: str, other: str) -> None:
    assert written_otherwise(text) == other


def test_every_packaged_probe_changes_in_its_end_alone() -> None:
    probes = read_probes()
    others = probes.otherwise()
    assert others.groups == probes.groups
    for text, other in zip(probes.texts, others.texts, strict=True):
        assert text != other
        shorter, longer = sorted((text.rstrip(), other), key=len)
        assert longer.startswith(shorter)
        assert len(longer) - len(shorter) <= 3
