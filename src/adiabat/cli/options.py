"""What every verb shares: options, settings out of a file and flags, and where answers go."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adiabat.cli.console import PEOPLE, say
from adiabat.config.reader import S, read_settings
from adiabat.core.errors import AdiabatError

if TYPE_CHECKING:
    from adiabat.results.evaluation_result import Result
    from adiabat.results.suite_result import SuiteResult

Config = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.", show_default=False)]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as run.device=cpu.")]
Seed = Annotated[str | None, typer.Option("--seed", metavar="N", help="Short for --set run.seed=N.", show_default=False)]
Device = Annotated[str | None, typer.Option("--device", help="Short for --set run.device=auto|cpu|cuda|cuda:N.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]

NOTHING: Mapping[str, Any] = MappingProxyType({})


def settings_of(
    kind: type[S],
    config: Path | None,
    assignments: list[str] | None,
    *,
    seed: str | None = None,
    device: str | None = None,
    split: str | None = None,
    out: Path | None = None,
    budget_flops: str | None = None,
    seconds: str | None = None,
) -> S:
    """Settings from the file, then ``--set``, then the short flags."""
    numbers = {"run.seed": seed, "train.budget_flops": budget_flops, "train.budget_seconds": seconds}
    texts = {"run.device": device, "data.split": split, "job.out": out}
    return read_settings(kind, config, [*(assignments or ()), *short_for(texts, numbers)])


def short_for(texts: Mapping[str, Path | str | None], numbers: Mapping[str, str | None] = NOTHING) -> list[str]:
    """What short flags say, as ``--set`` would.

    Args:
        texts: Setting to what was typed; None where nothing was.
    """
    written = {**numbers, **{key: None if value is None else json.dumps(str(value)) for key, value in texts.items()}}
    return [f"{key}={value}" for key, value in written.items() if value is not None]


def command_line() -> str:
    """What was typed, for reports."""
    return shlex.join(["adiabat", *sys.argv[1:]])


def answer(found: str | dict[str, Any]) -> None:
    """Print what a program reads: on stdout."""
    print(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, indent=2))


def show_result(result: "Result") -> None:
    """Print what people read: on stderr."""
    from adiabat.report.evaluation_headline import caveats
    from adiabat.report.evaluation_table import result_table

    PEOPLE.print(result_table(result))
    for sentence in caveats(result):
        say(f"note: {sentence}")
    if result.training is not None and not result.datasets:
        # They were told hours ago, and some say how far the figures can be believed.
        for sentence in result.training.notes:
            say(f"note: {sentence}")


def show_suite(found: "SuiteResult", out: Path | None, *, as_json: bool) -> None:
    """Print a suite as tables for people, and what a program reads.

    Args:
        out: Its directory; None where nothing was written.
    """
    from adiabat.report.evaluation_headline import RANKINGS
    from adiabat.report.suite_table import suite_table

    PEOPLE.print(suite_table(found))
    mains = (found.main_score(task.name, model.name) for task in found.tasks for model in found.models)
    for model, by in dict.fromkeys((main.model, main.similarity) for main in mains if main is not None and main.similarity in RANKINGS):
        say(f"note: {model} was compared by {RANKINGS[by]}")
    for sentence in found.notes:
        say(f"note: {sentence}")
    if as_json or out is not None:
        answer(found.to_json() if as_json else str(Path(str(out)) / "report.html"))


def rank() -> int:
    """Which of a launcher's processes this is.

    Returns:
        0 for the main one, and where there is no launcher.
    """
    return _number("RANK")


def local_rank() -> int:
    """Which of the processes on its machine this is.

    Returns:
        0 for the first, and where there is no launcher.
    """
    return _number("LOCAL_RANK")


@contextmanager
def told_once() -> Iterator[None]:
    """Let one process of each machine tell what all of its processes find: in their settings, or on their disk."""
    try:
        yield
    except AdiabatError:
        if local_rank():
            raise typer.Exit(2) from None
        raise


def _number(name: str) -> int:
    """A number that a launcher gives; 0 where there is none."""
    number = os.environ.get(name, "")
    return int(number) if number.isdigit() else 0
