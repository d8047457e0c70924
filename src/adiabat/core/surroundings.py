"""What a process finds around it: a folder for caches, streams and what they can show, the width of the
terminal.
"""

import codecs
import io
import os
import re
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO, TypedDict

from adiabat.core.disk import make_folder, real
from adiabat.core.errors import ConfigError, DataError

CACHE = "XDG_CACHE_HOME"


def user_cache() -> Path:
    """Folder ``adiabat`` in the user's cache directory; among temporary files if a user has no home that can
    be written.

    A directory that the user states is taken as it is.
    """
    wanted = _cache_home()
    if wanted is not None and (os.environ.get(CACHE) or is_writable(wanted / "adiabat")):
        return real(wanted / "adiabat")
    folder = _temporary_cache()
    place = "there is no home directory" if wanted is None else f"{wanted} cannot be written"
    warnings.warn(f"{place}: caches are in {folder}; set {CACHE} to choose another folder", stacklevel=2)
    return folder


def hub_cache(variable: str, name: str) -> Path | None:
    """A cache folder for a library of the hub that has no place for its own; None if it has.

    Args:
        variable: Environment variable by which a user sets the library's folder.
        name: The library's folder below ``huggingface`` in the user's cache directory.
    """
    if os.environ.get(variable) or os.environ.get("HF_HOME"):
        return None
    home = _cache_home()
    own = None if home is None else home / "huggingface" / name
    # A folder that holds models may be read-only.
    if own is not None and (_exists(own) or is_writable(own)):
        return None
    return user_cache() / "huggingface" / name


def _cache_home() -> Path | None:
    """The user's cache directory; None for a user without a home directory, as in a container with a number
    for a user.
    """
    if stated := os.environ.get(CACHE):
        return Path(stated)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None


def is_writable(folder: Path) -> bool:
    """Whether a folder can be written; made if it is missing, since permissions alone do not tell."""
    try:
        make_folder(real(folder), parents=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _exists(path: Path) -> bool:
    """Whether a path is there; a folder above it that may not be looked into counts as no."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _temporary_cache() -> Path:
    """A folder of this user's own among temporary files, where others can write too."""
    try:
        folder = real(Path(tempfile.gettempdir())) / f"adiabat-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError as fault:
        raise DataError(
            f"a folder for caches must be writable, got {fault.strerror or fault}; set {CACHE} to one"
        ) from fault
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise DataError(f"{folder} must be a folder of the user's own; set {CACHE} to another one")
    return folder


ESCAPING = "adiabat"
"""Name of the error handler below."""

SIGNS = {
    "−": "-",
    "–": "-",
    "—": "-",
    "…": "...",
    "→": "->",
    "±": "+/-",
    "×": "x",
    "≈": "~",
    "≠": "!=",
    "≤": "<=",
    "≥": ">=",
    "\N{NO-BREAK SPACE}": " ",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    "•": "*",
    "✓": "yes",
    "²": "^2",
    "\N{REPLACEMENT CHARACTER}": "?",
}
"""Signs of messages and tables in ASCII."""


def _escaped(fault: UnicodeError) -> tuple[str, int]:
    """Signs and letters that an encoding lacks, in ASCII; letters as Python escapes them."""
    assert isinstance(fault, UnicodeEncodeError)
    lacking = fault.object[fault.start : fault.end]
    shown = [
        SIGNS.get(letter) or letter.encode("ascii", "backslashreplace").decode("ascii") for letter in lacking
    ]
    return "".join(shown), fault.end


codecs.register_error(ESCAPING, _escaped)


def settle_streams() -> None:
    """Open closed standard streams on nothing, and let those of output show any text.

    A file that is opened while a stream is closed would take its descriptor, and with it the words of every
    library.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The system takes the lowest free descriptor, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPING)
    if not isinstance(sys.stderr, Heedless):
        sys.stderr = Heedless(sys.stderr)


class Heedless:
    """A stream whose reader may vanish: what cannot be written is dropped, so that no note ends a run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_lost = False

    def write(self, text: str) -> int:
        """Write, or drop the text."""
        self._unless_lost(partial(self._stream.write, text))
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what is left."""
        self._unless_lost(self._stream.flush)

    def _unless_lost(self, act: Callable[[], object]) -> None:
        """Do something with the stream, as long as its reader has not vanished."""
        if self._is_lost:
            return
        try:
            act()
        except OSError:
            self._is_lost = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def release_stdout() -> None:
    """Drop output that cannot be written; the interpreter would fail on it when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def require_words(words: Sequence[str]) -> None:
    """Refuse words of a command line that the locale cannot read; in a locale of UTF-8, each argument is
    judged by its verb.
    """
    if sys.getfilesystemencoding() == "utf-8":
        return
    for word in words:
        try:
            # A byte that could not be decoded became a lone surrogate, which no encoding has.
            word.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(word).decode("utf-8", "replace")
            raise ConfigError(
                f"the locale must have the letters of {shown}; choose a locale of UTF-8, or set PYTHONUTF8=1"
            ) from None


def has_working_directory() -> bool:
    """Whether the working directory is still there; a relative path names nothing in one that was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def shows_any_text(stream: TextIO) -> bool:
    """Whether the encoding of a stream has every letter."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "").replace("_", "").startswith("utf")


NARROWEST, WIDEST = 40, 1_000
"""Columns between which tables are of use."""


class ConsoleSize(TypedDict, total=False):
    """Arguments of a console."""

    width: int
    height: int


def console_size() -> ConsoleSize:
    """Width and height for a console where the environment states none that are of use; empty otherwise."""
    width, height = os.environ.get("COLUMNS"), os.environ.get("LINES")
    if _is_size(width, NARROWEST) and _is_size(height, 1):
        return {}
    # 0 and words count as nothing stated.
    size = shutil.get_terminal_size()
    return {"width": min(max(size.columns, NARROWEST), WIDEST), "height": min(max(size.lines, 1), WIDEST)}


def settle_terminal() -> None:
    """State a size of the terminal that is of use, for libraries that read it from the environment."""
    if size := console_size():
        os.environ.update(COLUMNS=str(size["width"]), LINES=str(size["height"]))


def _is_size(stated: str | None, least: int) -> bool:
    """Whether a size is not stated, or stated as a number from `least` to `WIDEST`."""
    if stated is None:
        return True
    # Up to four digits: Python refuses to read thousands of them, and reads those of other scripts.
    return re.fullmatch("[0-9]{1,4}", stated) is not None and least <= int(stated) <= WIDEST
