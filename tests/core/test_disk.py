"""What adiabat writes in place, clears and renames: links that lie there are refused or replaced, and never
followed.
"""

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from adiabat.core.disk import (
    appending_to,
    clear,
    copy_folder,
    fresh_folder,
    give_usual_mode,
    is_part,
    make_folder,
    move,
    new_file,
    open_in_place,
    part_of,
    real,
    remove,
    require_sole,
    shorten,
)
from adiabat.core.errors import LinkError
from adiabat.core.files import write_text

Write = Callable[[Path], object]


def _put(path: Path) -> None:
    with new_file(path) as file:
        file.write(b"new")


def _append(path: Path) -> None:
    with appending_to(path) as file:
        file.write(b"new")


def _in_place(path: Path) -> None:
    os.close(open_in_place(path))


def _renamed(path: Path) -> None:
    (path.parent / "source").write_text("new", encoding="utf-8")
    move(path.parent / "source", path)


def _renamed_folder(path: Path) -> None:
    (path.parent / "source").mkdir()
    move(path.parent / "source", path)


def _copied(path: Path) -> None:
    (path.parent / "source").mkdir()
    copy_folder(path.parent / "source", path)


REPLACING: list[Write] = [
    _put,
    _renamed,
    _renamed_folder,
    _copied,
    fresh_folder,
    lambda path: write_text("new", path),
]
REFUSING: list[Write] = [_append, _in_place, make_folder, lambda path: shorten(path, 0), require_sole]
REMOVING: list[Write] = [remove, clear]


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "file").write_text("precious", encoding="utf-8")
    (tmp_path / "ours").mkdir()
    return tmp_path / "home"


def _is_whole(home: Path) -> bool:
    return [path.name for path in home.iterdir()] == ["file"] and (home / "file").read_text(
        encoding="utf-8"
    ) == "precious"


@pytest.mark.parametrize("target", ["../home/file", "../home", "../home/missing"])
@pytest.mark.parametrize("write", [*REPLACING, *REMOVING])
def test_what_replaces_or_removes_a_link_leaves_its_target_alone(
    precious: Path, write: Write, target: str
) -> None:
    place = precious.parent / "ours" / "name"
    place.symlink_to(target)
    write(place)
    assert not place.is_symlink()
    assert _is_whole(precious)


@pytest.mark.parametrize("target", ["../home/file", "../home", "../home/missing"])
@pytest.mark.parametrize("write", REFUSING)
def test_what_goes_on_in_a_place_refuses_a_link_and_names_it(
    precious: Path, write: Write, target: str
) -> None:
    place = precious.parent / "ours" / "name"
    place.symlink_to(target)
    with pytest.raises(LinkError, match=rf"ours/name must .* got a symbolic link to {re.escape(target)};"):
        write(place)
    assert _is_whole(precious)


@pytest.mark.parametrize("write", [*REPLACING, *REFUSING, *REMOVING])
def test_nothing_is_done_inside_a_folder_that_is_a_link(precious: Path, write: Write) -> None:
    (precious.parent / "ours" / "inner").symlink_to("../home")
    with pytest.raises(LinkError, match=r"ours/inner must be a file or folder of its own"):
        write(precious.parent / "ours" / "inner" / "file")
    assert (precious / "file").read_text(encoding="utf-8") == "precious"


@pytest.mark.parametrize("write", [_append, _in_place, lambda path: shorten(path, 0)])
def test_a_file_with_a_second_name_is_not_written_into(precious: Path, write: Write) -> None:
    place = precious.parent / "ours" / "name"
    place.hardlink_to(precious / "file")
    with pytest.raises(LinkError, match="ours/name must have one name, .* got 2 hard links; put a copy"):
        write(place)
    _put(place)
    assert _is_whole(precious)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(LinkError, match="log must be a plain file"):
        appending_to(tmp_path / "log")


def test_links_that_a_user_names_are_resolved_once_and_lead_where_they_lead(precious: Path) -> None:
    link = precious.parent / "link"
    link.symlink_to("home")
    assert real(link / "new") == precious / "new"
    assert real(precious / "new") == precious / "new"
    assert real(Path("relative/new")) == Path("relative/new")
    make_folder(real(link) / "new")
    assert (precious / "new").is_dir()
    (precious.parent / "nowhere").symlink_to("missing")
    with pytest.raises(LinkError, match="nowhere must .* missing place, got one to missing"):
        real(precious.parent / "nowhere")


def test_temporary_names_cannot_be_foreseen_and_those_of_killed_processes_go(tmp_path: Path) -> None:
    names = set()
    for _ in range(3):
        with part_of(tmp_path / "page") as (part, _file):
            names.add(part.name)
            assert is_part(part)
    assert len(names) == 3
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "home").write_text("precious", encoding="utf-8")
    for name in (".page.part-0123abcd", ".page.part0", ".page.partial", ".pager.part-0123abcd"):
        (tmp_path / name).write_text("left", encoding="utf-8")
    (tmp_path / ".page.part-aaaa").symlink_to("home")
    with (tmp_path / ".page.part-bbbb").open("wb") as at_work:
        fcntl.flock(at_work, fcntl.LOCK_EX)
        write_text("new", tmp_path / "page")
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        "home",
        "page",
        ".page.partial",
        ".pager.part-0123abcd",
        ".page.part-aaaa",
        ".page.part-bbbb",
    }
    assert (tmp_path / "home").read_text(encoding="utf-8") == "precious"


def test_the_mode_of_a_file_of_another_library_is_that_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "weights").touch(mode=0o600)
    before = os.umask(0o027)
    try:
        give_usual_mode(tmp_path / "weights")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / "weights").stat().st_mode & 0o777 == 0o640
