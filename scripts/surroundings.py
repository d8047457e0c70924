"""Try commands in surroundings that users have and tests do not: no home, closed streams, a full disk, few
descriptors, little memory.

    python scripts/surroundings.py [--only PATTERN] [--folder DIR]

Each command runs once as it should, and once in each surrounding, in a fork of a process that has imported
everything. It must end with an
expected exit code, and with at most one line of its own as the reason: no defect, no traceback, nothing that
waits for ever, and no store or model called damaged. What a surrounding did not prevent must be what the
command leaves otherwise. Linux only.
"""

import argparse
import ctypes
import encodings.cp437
import encodings.utf_8_sig  # noqa: F401
import io
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from left_files import contents, differences
from reliability import VERBS, Ended, Verb, made_whole, needed_of, place, prepare, run
from small_world import write_world

SECONDS = 240
"""After which a command is taken to wait for ever."""

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096


def _system(name: str, *arguments: object) -> None:
    """Call the C library, and raise its error."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _as_number(number: int = 4242) -> None:
    """Become a user who has a number alone, in a name space whose mounts nobody else sees."""
    _system("unshare", CLONE_NEWUSER | CLONE_NEWNS)
    for file, text in (("setgroups", "deny"), ("uid_map", f"{number} 0 1"), ("gid_map", f"{number} 0 1")):
        Path(f"/proc/self/{file}").write_text(text, encoding="ascii")


def _as_owner_of_mounts() -> None:
    _as_number(0)


def no_home() -> None:
    """A user with a number alone, as in a container."""
    _as_number()
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME"):
        os.environ.pop(name, None)


def home_nowhere() -> None:
    """A home directory that is not there and cannot be made."""
    os.environ.pop("XDG_CACHE_HOME", None)
    os.environ["HOME"] = "/proc/nowhere"


def cache_unwritable() -> None:
    """A cache folder on a file system that cannot be written."""
    os.environ["XDG_CACHE_HOME"] = "/proc"


def no_temporary_folder() -> None:
    """No folder for temporary files, and the working directory takes its place."""
    os.environ["TMPDIR"] = "/proc/nowhere"
    tempfile.tempdir = None


def private_files() -> None:
    """Files that only their owner may read."""
    os.umask(0o077)


def far_away() -> None:
    """A time zone with minutes, and a locale that writes commas."""
    os.environ |= {"TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE.UTF-8"}
    time.tzset()


def no_shared_memory() -> None:
    """A system whose ``/dev/shm`` is read-only and empty."""
    _as_owner_of_mounts()
    _system("mount", b"none", b"/dev/shm", b"tmpfs", MS_RDONLY, None)


def read_only() -> None:
    """A working directory that cannot be written, as are all files in it."""
    _as_owner_of_mounts()
    here = os.fsencode(Path.cwd())
    _system("mount", here, here, None, MS_BIND, None)
    _system("mount", here, here, None, MS_BIND | MS_REMOUNT | MS_RDONLY, None)
    os.chdir(here)


def removed_folder() -> None:
    """A working directory that somebody removed."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def _streams(closed: Sequence[int] = (), full: Sequence[int] = (), encoding: str = "utf-8") -> None:
    """The standard streams as Python would make them at its start."""
    for descriptor in full:
        os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)
    for descriptor in closed:
        os.close(descriptor)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = None
        if descriptor not in closed:
            errors = "strict" if descriptor == 1 else "backslashreplace"
            stream = io.TextIOWrapper(
                io.FileIO(descriptor, "w", closefd=False),
                encoding=encoding,
                errors=errors,
                write_through=True,
            )
        setattr(sys, name, stream)
    if 0 in closed:
        sys.stdin = None


def no_stdout() -> None:
    """A closed standard output."""
    _streams(closed=(1,))


def no_stderr() -> None:
    """A closed standard error."""
    _streams(closed=(2,))


def no_streams() -> None:
    """No stream at all, as for a daemon."""
    _streams(closed=(0, 1, 2))


def full_stderr() -> None:
    """Notes go to a full disk."""
    _streams(full=(2,))


def full_stdout() -> None:
    """Results go to a full disk."""
    _streams(full=(1,))


def ascii_output() -> None:
    """A terminal of ASCII."""
    _streams(encoding="ascii")


def latin_output() -> None:
    """A terminal of Latin-1."""
    _streams(encoding="latin-1")


def _limit(name: int, amount: int) -> None:
    resource.setrlimit(name, (amount, amount))


def short_files(size: int) -> Callable[[], None]:
    """Files of a size at most, so that larger ones end as on a full disk."""
    return lambda: _limit(resource.RLIMIT_FSIZE, size)


def small_disk(size: int) -> Callable[[], None]:
    """A working directory on a disk that fills up."""

    def settle() -> None:
        here = Path.cwd()
        entries = [
            (path.name, os.readlink(path) if path.is_symlink() else None, path) for path in here.iterdir()
        ]
        kept = tempfile.mkdtemp()
        _as_owner_of_mounts()
        _system("mount", os.fsencode(here), os.fsencode(kept), None, MS_BIND, None)
        _system("mount", b"none", os.fsencode(here), b"tmpfs", 0, f"size={size}".encode())
        os.chdir(here)
        for name, target, path in entries:
            path.symlink_to(target if target is not None else f"{kept}/{name}")

    return settle


def few_descriptors(count: int) -> Callable[[], None]:
    """A limit on open files."""
    return lambda: _limit(resource.RLIMIT_NOFILE, count)


def little_memory(more: int) -> Callable[[], None]:
    """A limit on the address space, above what the process has."""

    def settle() -> None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + more)

    return settle


def no_threads() -> None:
    """A user who may start no further thread."""
    _limit(resource.RLIMIT_NPROC, 1)
    os.setresgid(4242, 4242, 4242)
    os.setresuid(4242, 4242, 4242)


@dataclass(frozen=True)
class Surrounding:
    """Where a command is tried.

    Attributes:
        settle: Makes the surrounding for the process that calls it.
        codes: Exit codes with which a command may end there.
    """

    settle: Callable[[], None]
    codes: Sequence[int] = (0,)


KB, MB = 1 << 10, 1 << 20
SURROUNDINGS = {
    "no home": Surrounding(no_home),
    "home nowhere": Surrounding(home_nowhere),
    # A folder that the user states is not replaced by another one: the verbs that need it refuse it.
    "cache unwritable": Surrounding(cache_unwritable, (0, 2)),
    "no temporary folder": Surrounding(no_temporary_folder, (0, 2)),
    "private files": Surrounding(private_files),
    "far away": Surrounding(far_away),
    "no shared memory": Surrounding(no_shared_memory),
    "read-only": Surrounding(read_only, (0, 2)),
    "removed folder": Surrounding(removed_folder, (2,)),
    "no stdout": Surrounding(no_stdout),
    "no stderr": Surrounding(no_stderr),
    "no streams": Surrounding(no_streams),
    "full stderr": Surrounding(full_stderr),
    "full stdout": Surrounding(full_stdout, (0, 2)),
    "ASCII": Surrounding(ascii_output),
    "Latin-1": Surrounding(latin_output),
    **{f"files of {size} KB": Surrounding(short_files(size * KB), (0, 2)) for size in (1, 4, 16, 64)},
    **{
        f"disk of {size} KB": Surrounding(small_disk(size * KB), (0, 2))
        for size in (8, 32, 64, 128, 256, 512)
    },
    **{
        f"{count} descriptors": Surrounding(few_descriptors(count), (0, 1, 2))
        for count in (4, 6, 8, 10, 12, 16)
    },
    **{f"{more} MB more": Surrounding(little_memory(more * MB), (0, 1)) for more in (0, 1, 4, 16, 64)},
    "no threads": Surrounding(no_threads, (0, 1)),
}

MORE = (
    Verb("inspect", ("inspect", "pairs.jsonl", "--model", "model"), ()),
    Verb("inspect --json", ("inspect", "pairs.jsonl", "--json"), ()),
    Verb(
        "search --json",
        ("search", "store", "which is river 3 – étude 星", "--model", "model", "--json"),
        (),
        needs=("embed",),
    ),
    Verb("settings", ("settings", "tune"), ()),
    Verb("help", ("--help",), ()),
    Verb("tune --help", ("tune", "--help"), ()),
)

WRONG = (
    "defect",
    "Traceback",
    "Exception ignored",
    "undamaged",
    "must hold a transformers model",
    "must hold a tokenizer",
)


def run_in(words: Sequence[str], folder: Path, surrounding: Surrounding) -> Ended:
    """Run a command in a surrounding, in a process of its own."""

    def hook() -> None:
        try:
            signal.alarm(SECONDS)
            _streams()
            surrounding.settle()
        except BaseException:
            traceback.print_exc()
            os._exit(99)

    return run(words, folder, hook=hook)


def open_to_all(folder: Path) -> None:
    """Let another user read and write."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)


def faults(verb: Verb, ended: Ended, surrounding: Surrounding) -> list[str]:
    """What must not be, in a few words."""
    found = [word for word in WRONG if word in ended.err or word in ended.out]
    if ended.code not in surrounding.codes:
        found.append(f"exit code {ended.code}")
    return found


def main() -> None:
    """Run every command in every surrounding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="regular expression of VERB:SURROUNDING")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "adiabat-surroundings")
    given = parser.parse_args()
    prepare()
    VERBS.update({verb.name: verb for verb in MORE})
    world = given.folder / "world"
    write_world(world)
    open_to_all(given.folder)
    count, wrong = 0, 0
    for verb, _, made in made_whole(world, given.folder / "whole", list(VERBS.values())):
        wanted = contents(given.folder / "whole" / verb.name, verb.left)
        for name, surrounding in SURROUNDINGS.items():
            if not re.search(given.only, f"{verb.name}:{name}"):
                continue
            here = place(world, given.folder / "work", needed_of(verb, made))
            open_to_all(here)
            ended = run_in(verb.words, here, surrounding)
            found = faults(verb, ended, surrounding)
            if not ended.code and "disk" not in name:
                found += differences(contents(here, verb.left), wanted)
            count, wrong = count + 1, wrong + bool(found)
            last = ended.err.strip().splitlines()[-1:] if ended.code else []
            print(
                f"{'WRONG ' if found else ''}{verb.name}: {name}: {ended.code} "
                f"{found or ''} {' '.join(last)[:300]}",
                flush=True,
            )
    print(f"{wrong} of {count} commands end as they must not")


if __name__ == "__main__":
    main()
