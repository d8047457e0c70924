"""Suites that come with adiabat, by their names."""

import difflib
from importlib import resources
from pathlib import Path

from adiabat.errors import ConfigError

ENDING = ".toml"


def suite_file(name: str) -> Path:
    """Where the settings of a suite are."""
    if Path(name).exists() or name.endswith(ENDING):
        return Path(name)
    known = named_suites()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]}?" if near else f"the suites that come with adiabat are {', '.join(known)}"
    raise ConfigError(f"--suite must be a TOML file or a suite that comes with adiabat, got {name}; {advice}")


def named_suites() -> dict[str, Path]:
    """The suites that come with adiabat.

    Returns:
        Name to file, sorted.
    """
    folder = Path(str(resources.files("adiabat.suite") / "named"))
    return {path.stem: path for path in sorted(folder.glob(f"*{ENDING}"))}
