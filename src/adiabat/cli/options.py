"""What verbs have in common: shared options, their settings, and answers on stdout and stderr."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adiabat.api.progress_display import PEOPLE, say
from adiabat.config.reader import S, read_settings
from adiabat.core.errors import AdiabatError

if TYPE_CHECKING:
    from adiabat.results.record import Record

Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="TOML file of settings.", show_default=False)]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as run.device=cpu; overrides --config; repeatable."),
]
Seed = Annotated[
    str | None, typer.Option("--seed", metavar="N", help="Seed of every random choice (run.seed). Default: 0.", show_default=False)
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="auto, cpu, cuda or cuda:N (run.device). Default: auto, a GPU if there is one.", show_default=False),
]
Split = Annotated[
    str | None, typer.Option("--split", metavar="NAME", help="Split of a BEIR folder or hub data set (data.split).", show_default=False)
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")]
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
    texts: Mapping[str, Path | str | list[str] | None] = NOTHING,
    numbers: Mapping[str, str | None] = NOTHING,
) -> S:
    """Settings from the file, then ``--set``, then the verb's own options.

    Args:
        texts: Setting to the text or texts of its option; None where it was not given.
        numbers: Setting to the number of its option, read as TOML.
    """
    texts = {"run.device": device, "data.split": split, **texts}
    numbers = {"run.seed": seed, **numbers}
    return read_settings(kind, config, [*(assignments or ()), *short_for(texts, numbers)])


def short_for(texts: Mapping[str, Path | str | list[str] | None], numbers: Mapping[str, str | None] = NOTHING) -> list[str]:
    """The ``--set`` assignments that options stand for."""
    written = {key: value if isinstance(value, list) else str(value) for key, value in texts.items() if value not in (None, [])}
    raw = {key: value for key, value in numbers.items() if value is not None}
    return [f"{key}={value}" for key, value in {**raw, **{key: json.dumps(value) for key, value in written.items()}}.items()]


def answer(result: str | dict[str, Any]) -> None:
    """Print the answer for programs, on stdout."""
    print(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2))


def show(record: "Record", *, as_json: bool, location: Path | str | None) -> None:
    """Print the table and the notes of a record on stderr; its location, or with ``--json`` all of it, on stdout."""
    from adiabat.report.summaries import notes, terminal_tables

    PEOPLE.print(*terminal_tables(record))
    for sentence in notes(record):
        say(f"note: {sentence}")
    if as_json or location is not None:
        answer(record.to_json() if as_json else str(location))


def rank() -> int:
    """Number of this process among those of a launcher; 0 for the main one."""
    return _number("RANK")


def local_rank() -> int:
    """Number of this process among those of its machine."""
    return _number("LOCAL_RANK")


@contextmanager
def told_once() -> Iterator[None]:
    """Let one process of each machine report an error that all of them meet."""
    try:
        yield
    except AdiabatError:
        if local_rank():
            raise typer.Exit(2) from None
        raise


def _number(name: str) -> int:
    number = os.environ.get(name, "")
    return int(number) if number.isdigit() else 0
