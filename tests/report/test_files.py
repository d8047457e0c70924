import json
from dataclasses import replace

import pytest

from adiabat.core.errors import DataError
from adiabat.core.files import write_text
from adiabat.results.record import read_result, write_record
from tests.report.sample_results import full_result, make_dataset, make_example, make_result


@pytest.fixture
def written(tmp_path):
    """A file of a whole result, and its content as plain data."""
    path = tmp_path / "result.json"
    write_record(full_result().to_json(), path)
    return path, {key: value for key, value in json.loads(path.read_text(encoding="utf-8")).items() if key != "checksum"}


def test_a_result_comes_back_equal(written):
    path, _ = written
    assert read_result(path) == full_result()


def test_a_file_of_before_settings_and_inputs_were_kept_is_read(written):
    path, plain = written
    del plain["settings"], plain["inputs"]
    path.write_text(json.dumps(plain), encoding="utf-8")
    assert (read_result(path).settings, read_result(path).inputs) == ({}, {})


def test_a_changed_digit_is_refused(written):
    path, _ = written
    text = path.read_text(encoding="utf-8")
    assert text.count("0.661") >= 1
    path.write_text(text.replace("0.661", "0.761", 1), encoding="utf-8")
    with pytest.raises(
        DataError, match=r"result\.json must be undamaged, got ValueError: its content does not match its checksum; make it anew"
    ):
        read_result(path)


def test_texts_of_any_script_come_back_equal(tmp_path):
    result = make_result(examples=[make_example('ما هي 中文 🙂 <script> \u2028 "quoted" \\')])
    write_record(result.to_json(), tmp_path / "result.json")
    assert read_result(tmp_path / "result.json") == result


def test_half_a_character_is_stored_as_a_replacement(tmp_path):
    write_record(make_result(examples=[make_example("cut \ud83d here")]).to_json(), tmp_path / "result.json")
    assert read_result(tmp_path / "result.json").examples[0].query == "cut \ufffd here"


def test_the_same_result_gives_the_same_bytes_in_sorted_order(tmp_path):
    result = full_result()
    shuffled = replace(result, versions=dict(reversed(result.versions.items())))
    for name, one in (("a", result), ("b", shuffled)):
        write_record(one.to_json(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert list(json.loads((tmp_path / "a").read_text())) == sorted([*result.to_json(), "checksum"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused_with_their_place(tmp_path, value):
    result = make_result(make_dataset("cs", "target", 0.5, 0.6))
    bad = replace(result.datasets[0], changes=[replace(result.datasets[0].changes[0], z=value)])
    with pytest.raises(DataError, match=r"result\.datasets\[0\]\.changes\[0\]\.z must be finite"):
        write_record(replace(result, datasets=[bad]).to_json(), tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    path.write_text("old")

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(DataError, match="must be writable, got No space left on device"):
        write_text("new", path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_one_line(tmp_path):
    with pytest.raises(DataError, match="must be writable"):
        write_text("new", tmp_path / "nowhere" / "page.html")


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"result.json must be a readable result.json, got No such file or directory"):
        read_result(tmp_path / "result.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "must be undamaged"),
        (b"", "must be undamaged"),
        (b"\xff\xfe", "must be undamaged"),
        (b'{"format": NaN}', "format must be 3, got nan"),
        (b"[]", "must be undamaged, got TypeError: it holds a JSON list"),
        (b"{}", "format must be 3, got None"),
        (b'{"format": 1}', "format must be 3, got 1"),
        (b'{"format": 3}', "title: Field required; command: Field required"),
        (b"[" * 100_000, "must be undamaged"),
    ],
)
def test_a_file_of_another_kind_is_one_line(tmp_path, content, message):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_result(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_fault_is_named_with_its_place(written):
    path, data = written
    data["datasets"][0]["changes"][0]["after"] = "high"
    data["training"]["steps"] = 1.5
    del data["seed"]
    path.write_text(json.dumps(data))
    with pytest.raises(DataError, match="3 faults: ") as caught:
        read_result(path)
    for place in ("datasets.0.changes.0.after", "training.steps", "seed: Field required"):
        assert place in str(caught.value)


def test_a_number_beyond_the_range_of_floats_is_refused(written):
    path, data = written
    path.write_text(json.dumps(data).replace("0.661", "1e999"))
    with pytest.raises(DataError, match=r"changes\[0\]\.after must be finite, got inf"):
        read_result(path)


def test_a_main_measure_that_was_not_measured_is_refused(written):
    path, data = written
    data["datasets"][0]["main"] = "RR@10"
    path.write_text(json.dumps(data))
    with pytest.raises(DataError, match="data set cs: main must be one of its measures, got RR@10"):
        read_result(path)


def test_a_grid_that_does_not_fit_its_languages_is_refused(written):
    path, data = written
    data["datasets"][2]["grid"][0]["after"][1].pop()
    path.write_text(json.dumps(data))
    with pytest.raises(DataError, match="the entailment-neutral grid must have 3 rows and columns"):
        read_result(path)
