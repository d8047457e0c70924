"""Plant links where a command is about to write, and see that nothing changes but what the command was told
to write.

A command is killed just before it writes a file or folder for the first time. A link takes that name: to a
file, to a folder, or to a place where nothing is; or a folder that is there already moves elsewhere, and a
link to it remains. Then the same command runs again. It must end, or refuse the link in one line, and what
the links lead to must be as before.
"""

import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reliability import VERBS, Verb, needed_of, place, run
from trials import FileTrial, Trials
from writes import Moment, moments, run_until

KINDS = ("file", "folder", "nothing", "moved")
"""What a planted link leads to."""
OUTSIDE = "home"
"""Folder that no command is told of."""
GOOD = ("refused", "ended")


FOLDERS = ("os.mkdir", "os.rmdir", "shutil.rmtree")
"""Audit events of folders."""


def places_of(every: Sequence[Moment]) -> dict[str, int]:
    """Every path that a command writes, and the number of the moment before it does so first.

    Args:
        every: Moments of a whole run.

    Returns:
        By path; names that nobody can foresee are left out, and of those that differ in a number only the
        first and the last remain.
    """
    first: dict[str, int] = {}
    for number, moment in enumerate(every):
        if moment.path and "RANDOM" not in moment.path:
            first.setdefault(moment.path, number)
    kinds: dict[str, list[str]] = {}
    for path in first:
        kinds.setdefault(Moment("", path).kind, []).append(path)
    return {path: first[path] for paths in kinds.values() for path in dict.fromkeys((paths[0], paths[-1]))}


def plant(kind: str, target: Path, outside: Path) -> bool:
    """Put a link in the place of whatever is there.

    Args:
        kind: Of `KINDS`.
        target: Place of the link.
        outside: Folder that it leads into.

    Returns:
        Whether there was something to do.
    """
    leads = outside / {"file": "letter", "folder": "album", "nothing": "free", "moved": "moved"}[kind]
    if kind == "moved":
        if not target.is_dir() or target.is_symlink():
            return False
        target.rename(leads)
    elif target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(os.path.relpath(leads, target.parent.resolve()))
    return True


def state_of(outside: Path) -> dict[str, bytes | str]:
    """Everything in a folder: contents of files, and where links lead.

    Args:
        outside: The folder.

    Returns:
        By path.
    """
    found: dict[str, bytes | str] = {}
    for path in sorted(outside.rglob("*")):
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
        found[str(path.relative_to(outside))] = path.read_bytes() if kind == "file" else kind
    return found


def outside_of(here: Path) -> Path:
    """Make the folder that links lead into.

    Args:
        here: Folder of the command.

    Returns:
        The folder.
    """
    outside = here / OUTSIDE
    (outside / "album").mkdir(parents=True)
    for name in ("letter", "album/photo"):
        (outside / name).write_text("precious\n", encoding="utf-8")
    return outside


def trial(verb: Verb, here: Path, path: str, number: int, kind: str) -> FileTrial | None:
    """Plant one link and run the command again.

    Args:
        verb: The command.
        here: Where it works, as before its first run.
        path: Of the link.
        number: Of the moment when the first run is killed.
        kind: Of `KINDS`.

    Returns:
        The row; None where a folder was not there to be moved.
    """
    outside = outside_of(here)
    run_until(verb.words, here, number)
    if not plant(kind, here / path, outside):
        return None
    before = state_of(outside)
    ended = run([*verb.words, *verb.again], here)
    outcome = (
        "ended"
        if not ended.code
        else "refused"
        if ended.code == 2 and len(ended.err.strip().splitlines()) < 9
        else "defect"
    )
    after = state_of(outside)
    # A cache or an index that the user names may be a link to a folder with other files, which stay as they
    # are.
    kept = before if path in verb.left else {*before, *after}
    changed = sorted(name for name in kept if before.get(name) != after.get(name))
    if changed:
        outcome = "written outside"
    said = "" if outcome in GOOD else f"{changed} {ended.err[-600:]}"
    return FileTrial(f"{verb.name} {path} {kind}", verb.name, path, kind, outcome, said)


def links(
    world: Path, folder: Path, made: Mapping[str, Path], trials: Trials, *, only: Sequence[str], most: int
) -> None:
    """Make the trials that are not there yet.

    Args:
        world: Commands read it.
        folder: To work in.
        made: What verbs left, by name.
        trials: Their rows.
        only: Names of verbs.
        most: Number of places of each verb, drawn where there are more.
    """
    for name in only:
        verb = VERBS[name]
        for row in _of_verb(verb, world, folder, needed_of(verb, made), trials.names, most):
            trials.add(row)


def _of_verb(
    verb: Verb, world: Path, folder: Path, needed: Mapping[str, Path], done: set[str], most: int
) -> Iterator[FileTrial]:
    every, _ = moments(verb.words, place(world, folder, needed))
    places = places_of(every)
    for path in sorted(random.Random(verb.name).sample(sorted(places), min(most, len(places)))):
        first = places[path]
        # A folder moves once there is something in it.
        last = max(
            (number for number, moment in enumerate(every) if moment.path.startswith(f"{path}/")),
            default=first,
        )
        for kind in kinds_of(path, every[first], verb):
            if f"{verb.name} {path} {kind}" not in done:
                row = trial(
                    verb, place(world, folder, needed), path, last if kind == "moved" else first, kind
                )
                if row is not None:
                    yield row


def kinds_of(path: str, moment: Moment, verb: Verb) -> Sequence[str]:
    """Links that may do harm in a place.

    Args:
        path: Of the link.
        moment: When it is written first.
        verb: That writes it.

    Returns:
        Of `KINDS`.
    """
    kinds: Sequence[str] = ("folder", "moved") if moment.event in FOLDERS else ("file", "nothing")
    if moment.event == "os.rename":
        kinds = KINDS
    # A link that the user names may lead to a new place, or to the results so far.
    return [kind for kind in kinds if path not in verb.left or kind in ("file", "folder")]
