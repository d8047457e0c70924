"""Files of another version are told apart from damaged ones."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adiabat.core.errors import DataError
from adiabat.core.files import read_json, reading, write_json
from adiabat.core.formats import Format, rebuilt, to_upgrade
from adiabat.core.version import __version__, is_newer, version_in
from adiabat.core.wording import typed

STATE = Format(3, oldest=2, writers={1: "0.1"})


@dataclass
class Inner:
    loss: float
    pairs: int = 0


@dataclass
class State:
    step: int
    best: Inner | None = None
    sizes: tuple[int, ...] = ()
    by_name: dict[str, Inner] = field(default_factory=dict)


WHOLE: dict[str, Any] = {
    "step": 3,
    "best": {"loss": 0.5, "pairs": 2},
    "sizes": [1, 2],
    "by_name": {"a": {"loss": 1.0, "pairs": 1}},
}


def state_of(record: object, path: Path) -> State:
    return rebuilt(State, record, path, remedy="begin again")


def test_a_value_comes_back_from_its_record(tmp_path: Path) -> None:
    assert state_of(WHOLE, tmp_path / "state.json") == State(3, Inner(0.5, 2), (1, 2), {"a": Inner(1.0, 1)})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step": None}, "step must be given, got none"),
        ({"sizes": None}, "no key sizes"),
        ({"step": "3"}, "step must be a whole number, got '3'"),
        ({"step": True}, "step must be a whole number, got True"),
        ({"later": 1}, "unknown key later"),
        ({"best": {"loss": 0.5}}, "no key pairs"),
        ({"best": {"loss": 0.5, "pairs": 2, "drift": 0.1}}, "unknown key drift"),
        ({"by_name": {"a": {"loss": 1.0}}}, "no key pairs"),
        ({"by_name": [1]}, "by_name must be a table, got [1]"),
    ],
)
def test_a_record_with_other_keys_or_types_is_of_another_version(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    record = {key: value for key, value in {**WHOLE, **change}.items() if value is not None}
    path = tmp_path / "state.json"
    write_json(record, path)
    with pytest.raises(DataError) as caught:
        state_of(read_json(path, remedy="begin again"), path)
    message = str(caught.value)
    assert message.startswith(
        f"{path} must be as adiabat {__version__} writes it, got other content under a right checksum: "
    )
    assert told in message
    assert message.endswith("; begin again")
    assert "\n" not in message


def resealed(path: Path, writer: str, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adiabat.core.files.written_by", lambda: f"adiabat {writer}")
    write_json(record, path)


@pytest.mark.parametrize(("writer", "advice"), [("0.3.1", "; update adiabat"), ("0.1.0", "; begin again")])
def test_the_version_that_wrote_a_file_is_named_and_decides_the_advice(
    writer: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    resealed(path, writer, {"other": 1}, monkeypatch)
    with pytest.raises(DataError) as caught:
        state_of(read_json(path, remedy="begin again"), path)
    assert f"{path} was written by adiabat {writer}, this is adiabat {__version__}" in str(caught.value)
    assert str(caught.value).endswith(advice)


def test_a_reader_that_meets_anything_in_a_newer_file_says_to_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    resealed(path, "1.0", {}, monkeypatch)
    told = r"was written by adiabat 1\.0, this is adiabat .* \(KeyError: 'gone'\); update adiabat"
    with pytest.raises(DataError, match=told), reading(path, remedy="make it again"):
        read_json(path, remedy="")["gone"]


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1, f"was written by adiabat 0.1 (format 1), this is adiabat {__version__} (format 3); rebuild it"),
        (
            4,
            "was written by another version of adiabat (format 4), this is adiabat "
            f"{__version__} (format 3); update adiabat",
        ),
        (None, "must state its format, a number such as 3, got None; rebuild it"),
        ("2", "must state its format, a number such as 3, got 2; rebuild it"),
    ],
)
def test_a_format_that_is_not_read_is_told_with_what_to_do(number: object, told: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        STATE.require(number, tmp_path / "x", older="rebuild it")
    assert str(caught.value) == f"{tmp_path / 'x'} {told}"


@pytest.mark.parametrize("number", [2, 3])
def test_formats_that_are_read_pass(number: int, tmp_path: Path) -> None:
    STATE.require(number, tmp_path, older="")


def test_a_record_without_a_checksum_is_old_and_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"a": 1}), encoding="utf-8")
    with pytest.raises(DataError, match=r"old\.json must have a checksum, got none: .*0\.1 .*; redo"):
        read_json(path, remedy="redo")
    assert read_json(path, remedy="redo", required=False) == {"a": 1}


def test_versions_are_compared_by_their_numbers(tmp_path: Path) -> None:
    assert [is_newer(version) for version in ("0.1.0", __version__, "0.10", "1.0.0.dev1", "unknown")] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert version_in(tmp_path / "missing.json") is None
    (tmp_path / "result.json").write_text('{"versions": {"adiabat": "0.1.0"}}', encoding="utf-8")
    assert version_in(tmp_path / "result.json") == "0.1.0"


def test_the_advice_to_upgrade_speaks_the_words_of_its_door(tmp_path: Path) -> None:
    assert to_upgrade(Path("my store")) == 'run adiabat.upgrade("my store")'
    with typed("adiabat search"):
        assert to_upgrade(Path("my store")) == "run adiabat upgrade 'my store'"
