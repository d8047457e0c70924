"""Rows of trials on disk, and the report that their totals go into."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

REPORT = Path(__file__).resolve().parents[1] / "benchmarks" / "RELIABILITY.md"


@dataclass(frozen=True)
class FileTrial:
    """A trial with one file.

    Attributes:
        name: Of the trial, unique.
        case: Name of the case or verb.
        file: That was damaged, or where a link was planted, with digits for which runs differ left out.
        kind: Of damage or link.
        outcome: One word; each script says which are good.
        said: On stderr, where something is wrong.
    """

    name: str
    case: str
    file: str
    kind: str
    outcome: str
    said: str


@dataclass
class Trials:
    """Rows of trials in a file, so that a run that was cut short goes on.

    Attributes:
        path: Of the rows.
        planned: How many there are to be.
        rows: Of those that are done.
    """

    path: Path
    planned: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read what is done."""
        if self.path.exists():
            self.rows = [
                json.loads(line)
                for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True)
                if line.endswith("\n")
            ]
        self._done, self._begun = len(self.rows), time.monotonic()

    @property
    def names(self) -> set[str]:
        """Trials that are done."""
        return {row["name"] for row in self.rows}

    def add(self, row: Any) -> None:
        """Keep a row, and say how long the rest will take.

        Args:
            row: A dataclass with a name.
        """
        self.rows.append(asdict(row))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        pace = (time.monotonic() - self._begun) / (len(self.rows) - self._done)
        left = pace * (self.planned - len(self.rows))
        print(f"{len(self.rows)} of {self.planned}, {left / 60:.0f} min left: {row}", flush=True)


def write_section(title: str, lines: Sequence[str]) -> None:
    """Put a section into the report in place of the one of its title.

    Args:
        title: Of the section.
        lines: Under it.
    """
    text = REPORT.read_text(encoding="utf-8") if REPORT.exists() else "# Reliability\n"
    head, *sections = re.split(r"^(?=## )", text, flags=re.M)
    kept = [section for section in sections if not section.startswith(f"## {title}\n")]
    own = "\n".join([f"## {title}", "", *lines, ""])
    REPORT.write_text(
        head.rstrip() + "\n\n" + "\n".join(part.rstrip() + "\n" for part in sorted([*kept, own])),
        encoding="utf-8",
    )
