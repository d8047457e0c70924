"""What every verb shares: options, settings out of a file and flags, and where answers go."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adiabat.config import S, read_settings
from adiabat.console import PEOPLE

if TYPE_CHECKING:
    from adiabat.measure.results import Result

Config = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.", show_default=False)]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as run.device=cpu.")]
Seed = Annotated[str | None, typer.Option("--seed", metavar="N", help="Short for --set run.seed=N.", show_default=False)]
Device = Annotated[str | None, typer.Option("--device", help="Short for --set run.device=auto|cpu|cuda|cuda:N.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


def settings_of(
    kind: type[S],
    config: Path | None,
    assignments: list[str] | None,
    *,
    seed: str | None = None,
    device: str | None = None,
    split: str | None = None,
    out: Path | None = None,
) -> S:
    """Settings from the file, then ``--set``, then the short flags.

    Args:
        kind: Which settings.
        config: A TOML file.
        assignments: ``key=value``.
        seed: ``--seed``.
        device: ``--device``.
        split: ``--split``, of `data.split`.
        out: ``--out``, of `job.out`.

    Returns:
        The settings.
    """
    short = [f"run.seed={seed}"] if seed is not None else []
    short += [f"run.device={json.dumps(device)}"] if device is not None else []
    short += [f"data.split={json.dumps(split)}"] if split is not None else []
    short += [f"job.out={json.dumps(str(out))}"] if out is not None else []
    return read_settings(kind, config, [*(assignments or ()), *short])


def command_line() -> str:
    """What was typed, for reports.

    Returns:
        The words, quoted as a shell wants them.
    """
    return shlex.join(["adiabat", *sys.argv[1:]])


def answer(found: str | dict[str, Any]) -> None:
    """Print what a program reads: on stdout.

    Args:
        found: A line, or what becomes JSON.
    """
    print(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, indent=2))


def show_result(result: "Result") -> None:
    """Print what people read: on stderr.

    Args:
        result: Of a job or an evaluation.
    """
    from adiabat.report.table import result_table

    PEOPLE.print(result_table(result))


def rank() -> int:
    """Which of a launcher's processes this is.

    Returns:
        0 for the main one, and where there is no launcher.
    """
    number = os.environ.get("RANK", "")
    return int(number) if number.isdigit() else 0
