"""`adiabat.upgrade`: convert files of earlier versions in place."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adiabat.api.arguments import PathLike, path_of
from adiabat.api.call import Progress, called
from adiabat.core.disk import real, remove
from adiabat.core.errors import AdiabatError, DataError, several
from adiabat.core.text import counted


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What `upgrade` did, or would do.

    Attributes:
        converted: Each file or store that was converted, with what was done.
        dry_run: Whether nothing was written.
        backups: The former files.

    Example:
        >>> store = adiabat.embed("demo", ["Nodes and edges."], out="store")
        >>> adiabat.upgrade(store).converted
        {}
    """

    converted: dict[Path, str]
    dry_run: bool
    backups: tuple[Path, ...] = ()

    def summary(self) -> str:
        """A line for each file."""
        if not self.converted:
            return "nothing to upgrade: everything is of this version, or is read as it is"
        lines = [f"{path}: {what}" for path, what in self.converted.items()]
        done = "to convert" if self.dry_run else "converted"
        kept = f"; the former ones are kept as *{Path(self.backups[0]).suffix}" if self.backups else ""
        return "\n".join([*lines, f"{counted(len(lines), 'file')} {done}{kept}"])

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        converted = {str(path): what for path, what in self.converted.items()}
        return {
            "converted": converted,
            "dry_run": self.dry_run,
            "backups": [str(path) for path in self.backups],
        }


def upgrade(
    paths: PathLike | Sequence[PathLike],
    *,
    backup: bool = True,
    dry_run: bool = False,
    progress: Progress = None,
) -> Upgraded:
    """Convert stores, jobs, results and settings files of earlier versions of adiabat in place.

    Vectors are compared with their checksum and stay as they are; only small files are written. The former
    files are kept beside the new ones, as ``NAME.before-upgrade``. An interrupted call is completed by the
    same call. What this version reads as it is stays.

    Args:
        paths: A path or several: a store, the directory of a job, an experiment or a result, a folder of
            them, or a TOML file of settings.
        backup: Keep the former files.
        dry_run: Say what would be converted, and write nothing.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.

    Returns:
        What was converted.

    Raises:
        DataError: If a file cannot be converted; all others are converted first, and the message names each.

    Example:
        >>> store = adiabat.embed("demo", ["Nodes and edges."], out="store")
        >>> adiabat.upgrade(store, dry_run=True).converted
        {}
    """
    from adiabat.upgrading.upgrade import find

    # A path or a result of adiabat is one; anything else is a list of them.
    listed = [paths] if isinstance(paths, str) or hasattr(paths, "__fspath__") else list(paths)
    converted: dict[Path, str] = {}
    backups: list[Path] = []
    faults: list[str] = []
    with called("upgrade", progress) as call:
        for path in listed:
            found = find(real(Path(path_of(path, "paths"))))
            faults += found.faults
            for step in found.steps:
                try:
                    if not dry_run:
                        backups += step.run(call.watch)
                    converted[step.path] = step.what
                except AdiabatError as fault:
                    # The other files are converted all the same.
                    faults.append(str(fault))
        if not backup:
            remove(*backups)
            backups = []
        done = Upgraded(converted, dry_run, tuple(backups))
        # What could be converted is told before the error, which names only the rest.
        if faults:
            if converted:
                call.watch.note(done.summary())
            raise DataError(several(faults, of="files that cannot be converted"))
        return done
