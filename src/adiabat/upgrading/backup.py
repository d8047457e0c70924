"""Former files are kept beside the converted ones."""

from itertools import count
from pathlib import Path

from adiabat.core.files import write_bytes

SUFFIX = ".before-upgrade"


def set_aside(path: Path) -> Path:
    """Keep a file under a name beside it, before it is replaced; the copy of an interrupted call is used
    again.
    """
    content = path.read_bytes()
    for number in count(1):
        backup = path.with_name(f"{path.name}{SUFFIX}{'' if number == 1 else f'-{number}'}")
        if not backup.exists():
            write_bytes(content, backup)
            break
        if backup.read_bytes() == content:
            break
    return backup
