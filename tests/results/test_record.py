"""Records of every kind come back equal, and a file that is no such record is refused in one line."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adiabat.core.errors import DataError
from adiabat.core.files import sealed_json, write_text
from adiabat.report import pages
from adiabat.results.evaluation_result import Result
from adiabat.results.record import Record, read_result, write_result
from adiabat.results.suite_result import SuiteResult
from adiabat.runs.output_dir import write_report
from tests.report.sample_advice import make_advice
from tests.report.sample_results import full_result, make_dataset, make_example, make_result
from tests.report.sample_safe_rates import full_search
from tests.report.sample_spaces import make_space
from tests.report.sample_suites import full_suite
from tests.report.sample_sweeps import failed_sweep, simple_sweep
from tests.report.sample_tenants import make_tenants

SAMPLES: dict[str, Callable[[], Record]] = {
    "evaluation": full_result,
    "suite": full_suite,
    "sweep": simple_sweep,
    "rate-search": full_search,
    "space": make_space,
    "advice": make_advice,
    "tenants": make_tenants,
}


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A file whose content was changed, with a checksum that fits."""
    plain = json.loads(json.dumps(full_result().to_json()))
    change(plain)
    path = folder / "result.json"
    path.write_text(sealed_json(plain), encoding="utf-8")
    return path


def test_a_record_without_the_fields_of_later_versions_loads(tmp_path: Path) -> None:
    read = read_result(changed(tmp_path, lambda plain: plain.pop("equal_towers")), Result)
    assert read.equal_towers == []
    assert pages.verdict(read) == pages.verdict(full_result())


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_record_of_every_kind_comes_back_equal_and_equal_records_are_equal_files(
    kind: str, tmp_path: Path
) -> None:
    record = SAMPLES[kind]()
    assert record.kind == kind
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_report(record, tmp_path / folder)
    assert read_result(tmp_path / "a" / "result.json") == record
    files = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("a", "b")
    ]
    assert files[0] == files[1]
    assert {Path("report.html"), Path("result.json")} <= files[0].keys()
    assert list(json.loads((tmp_path / "a" / "result.json").read_text())) == sorted(
        [*record.to_json(), "checksum", "written_by"]
    )


def test_texts_of_any_script_come_back_equal_and_half_a_character_as_a_replacement(tmp_path: Path) -> None:
    result = make_result(examples=[make_example('ما هي 中文 🙂 <script> \u2028 "quoted" \\')])
    write_result(result, tmp_path)
    assert read_result(tmp_path / "result.json") == result
    write_result(make_result(examples=[make_example("cut \ud83d here")]), tmp_path)
    assert read_result(tmp_path / "result.json", Result).examples[0].query == "cut \ufffd here"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused_with_their_key(tmp_path: Path, value: float) -> None:
    result = make_result(make_dataset("cs", "target", 0.5, 0.6))
    bad = replace(result.datasets[0], changes=[replace(result.datasets[0].changes[0], z=value)])
    with pytest.raises(DataError, match=r"result\.datasets\[0\]\.changes\[0\]\.z must be finite"):
        write_result(replace(result, datasets=[bad]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_record_and_page_are_written_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = make_result(examples=[make_example("query")])

    def broken() -> str:
        raise RuntimeError("no page")

    with monkeypatch.context() as patch:
        patch.setattr(pages, "files", lambda record: {"report.html": broken})
        with pytest.raises(RuntimeError, match="no page"):
            write_report(result, tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "report.html").mkdir()
    with pytest.raises(DataError, match=r"report.html must be writable"):
        write_report(result, tmp_path)
    with pytest.raises(DataError, match="must be writable"):
        write_report(result, tmp_path / "nowhere")
    (tmp_path / "figures").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="figures must be writable"):
        write_report(full_search(), tmp_path)


def test_a_record_without_figures_has_no_folder_of_them(tmp_path: Path) -> None:
    write_report(failed_sweep(1e-8), tmp_path)
    assert not (tmp_path / "figures").exists()


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(DataError, match="must be writable, got No space left on device"):
        write_text("new", path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "must be undamaged"),
        (b"", "must be undamaged"),
        (b"\xff\xfe", "must be undamaged"),
        (b"[]", "must be undamaged, got TypeError: it holds a JSON list"),
        (b"{}", "must state its format"),
        (b"[" * 100_000, "must be undamaged"),
        (sealed_json({"format": 3}).encode(), "(format 3), this is adiabat"),
        (sealed_json({"format": 5}).encode(), "kind must be one of training, evaluation, suite,"),
        (
            sealed_json({"format": 5, "kind": "evaluation"}).encode(),
            "title must be given, got none; command must be given, got none",
        ),
        (None, "must be a readable result.json, got No such file or directory"),
    ],
)
def test_a_file_of_something_else_is_one_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "result.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_result(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_changed_digit_is_refused(tmp_path: Path) -> None:
    write_result(full_result(), tmp_path)
    path = tmp_path / "result.json"
    text = path.read_text(encoding="utf-8")
    assert "0.661" in text
    path.write_text(text.replace("0.661", "0.761", 1), encoding="utf-8")
    with pytest.raises(DataError, match="its content does not match its checksum"):
        read_result(path)


def test_every_fault_is_named_with_its_key(tmp_path: Path) -> None:
    def change(plain: dict[str, Any]) -> None:
        plain["datasets"][0]["changes"][0]["after"] = "high"
        plain["training"]["steps"] = 1.5
        del plain["seed"]

    with pytest.raises(DataError, match="3 faults: ") as caught:
        read_result(changed(tmp_path, change))
    for key in ("datasets.0.changes.0.after", "training.steps", "seed must be given"):
        assert key in str(caught.value)


def test_a_number_beyond_the_range_of_floats_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda plain: plain["datasets"][0]["changes"][0].update(after=float("inf")))
    with pytest.raises(DataError, match=r"changes\[0\]\.after must be finite, got inf"):
        read_result(path)


def test_a_record_of_another_class_than_expected_is_refused(tmp_path: Path) -> None:
    write_result(full_result(), tmp_path)
    with pytest.raises(DataError, match="must be the result of a job of kind suite, got evaluation"):
        read_result(tmp_path / "result.json", SuiteResult)
