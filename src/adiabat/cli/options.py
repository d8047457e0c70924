"""Common parts of verbs: shared options, settings, output on stdout and stderr, and one-line errors and
warnings.
"""

import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from adiabat.api.call import PEOPLE, one_line, say
from adiabat.config.reader import S, inline, read_settings
from adiabat.core.errors import AdiabatError, ConfigError, DataError
from adiabat.core.surroundings import shows_any_text

if TYPE_CHECKING:
    from adiabat.results.record import Record


def option(name: str, metavar: str | None, text: str) -> Any:
    """An optional option; its default is that of the setting."""
    return typer.Option(name, metavar=metavar, help=text, show_default=False)


Config = Annotated[Path | None, option("--config", "FILE", "TOML file of settings.")]
Assignments = Annotated[
    list[str] | None,
    option("--set", "KEY=VALUE", "One setting, such as run.device=cpu; overrides --config; repeatable."),
]
Seed = Annotated[str | None, option("--seed", "N", "Seed of every random choice (run.seed). Default: 0.")]
Device = Annotated[
    str | None,
    option("--device", None, "auto, cpu, cuda or cuda:N (run.device). Default: auto, a GPU if there is one."),
]
Split = Annotated[
    str | None, option("--split", "NAME", "Split of a BEIR folder or hub data set (data.split).")
]
Baseline = Annotated[str | None, option("--baseline", "MODEL", "Model to compare with.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")]
ExistOk = Annotated[
    bool,
    typer.Option(
        "--exist-ok",
        help="End at once where --out holds the result of this very command; refuse that of another.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model to start from: its query tower is tuned, its document tower made the store.",
    ),
]
ItsStore = Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors of this model.")]
TuningData = Annotated[
    str, typer.Argument(metavar="DATA", help="Queries with positives and, optionally, negatives.")
]

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
        texts: Setting to the text or texts of its option; None if the option is not given.
        numbers: Setting to the number of its option, read as TOML.
    """
    texts = {"run.device": device, "data.split": split, **texts}
    numbers = {"run.seed": seed, **numbers}
    return read_settings(kind, config, [*(assignments or ()), *short_for(texts, numbers)])


def short_for(
    texts: Mapping[str, Path | str | list[str] | None], numbers: Mapping[str, str | None] = NOTHING
) -> list[str]:
    """The ``--set`` assignments equivalent to options."""
    written = {
        key: inline(value if isinstance(value, list) else str(value))
        for key, value in texts.items()
        if value not in (None, [])
    }
    raw = {key: value for key, value in numbers.items() if value is not None}
    return [f"{key}={value}" for key, value in {**raw, **written}.items()]


def answer(result: str | dict[str, Any]) -> None:
    """Print machine-readable output on stdout."""
    if not isinstance(result, str):
        result = json.dumps(result, ensure_ascii=not shows_any_text(sys.stdout), indent=2)
    with writing_output():
        print(result)


@contextmanager
def writing_output() -> Iterator[None]:
    """Write to stdout, and through to what it leads to; its failure is told apart from one of the verb's
    files.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as fault:
        raise DataError(
            f"standard output must be writable, got {fault.strerror or fault}; "
            "the files of the verb are whole"
        ) from fault


def show(record: "Record", *, as_json: bool, location: Path | str | None) -> None:
    """Print the table and the notes of a record on stderr, and its location on stdout, or with ``--json`` all
    of it with its headline.
    """
    from adiabat.report.pages import notes, terminal_tables

    PEOPLE.print(*terminal_tables(record))
    for sentence in notes(record):
        say(f"note: {sentence}")
    if as_json or location is not None:
        answer(in_json(record) if as_json else str(location))


def in_json(record: "Record") -> dict[str, Any]:
    """A record as ``--json`` prints it: with the headline of its page and the sentences below, if it has a
    page.
    """
    from adiabat.report.pages import verdict

    headline, reasons = verdict(record)
    headed = {"headline": headline, "reasons": reasons} if headline else {}
    return {**headed, **record.to_json()}


def rank() -> int:
    """Rank of this process among those of a launcher; 0 for the main one."""
    return _number("RANK")


def local_rank() -> int:
    """Rank of this process on its machine."""
    return _number("LOCAL_RANK")


@contextmanager
def told_once() -> Iterator[None]:
    """Let one process of each machine report an error that occurs in all."""
    try:
        yield
    except AdiabatError:
        if local_rank():
            raise typer.Exit(2) from None
        raise


def _number(name: str) -> int:
    number = os.environ.get(name, "")
    return int(number) if number.isdigit() else 0


def complain(sentence: str) -> None:
    """Print an error, unwrapped, so that it stays one line in a log."""
    print(f"adiabat: {one_line(sentence)}", file=sys.stderr)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings without their file and line number."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        yield


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    say(f"warning: {message}")


def fold_retain(arguments: Sequence[str]) -> list[str]:
    """Join ``--retain STORE DATA`` into one value with NUL between, because typer has no repeatable option of
    two values.

    ``--verify``, which every verb takes, moves before the verb.
    """
    words: list[str] = []
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            return [*words, word, *remaining]
        if word == "--verify":
            words.insert(0, word)
            continue
        if word == "--retain" or word.startswith("--retain="):
            pair = [word.removeprefix("--retain=")] if "=" in word else remaining[:2]
            if len(pair) < 2 or any(not value or value.startswith("--") for value in pair):
                words_given = shlex.join(pair) or "nothing"
                raise ConfigError(f"--retain takes two words, STORE and DATA, got {words_given}; write both")
            word, remaining = "\0".join(pair), remaining[2:]
            words.append("--retain")
        words.append(word)
    return words
