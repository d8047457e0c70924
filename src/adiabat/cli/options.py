"""Common parts of verbs: how they declare their options, shared options, output on stdout and stderr, and
one-line errors and warnings.

A verb is a function of what was given, below a list of its arguments and options in the order of ``--help``::

    @verb(
        argument("DATA", "Queries with positives."),
        required("--out", "FILE", "File of the examples with negatives."),
        setting("mine.source", "--source", None, "Source of candidates."),
        *USUAL,
    )
    def mine(given: Given) -> None:
        settings = given.settings(MineSettings)
        adiabat.mine(given.data, given.corpus, given.out, settings=settings)

An option is either an argument of the function in `adiabat` that the verb calls, or short for one setting,
whose key stands at its declaration. Both doors thus read settings in one place: a file, then ``--set``, then
these options. The text of ``--help`` states the default of an option that is short for a setting, because the
setting, and not the option, has it.
"""

import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, Signature
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


NOTHING: Mapping[str, Any] = MappingProxyType({})
"""No settings; it cannot be changed, so it may be a default."""


@dataclass(frozen=True)
class Option:
    """An argument or option of a verb.

    Attributes:
        name: Name of its value in `Given`.
        kind: Type of its value.
        word: How the user writes it: a flag, or the name of an argument in ``--help``.
        shown: How typer reads and explains it.
        default: Its value if it is not given.
        key: The setting that it is short for; "" for none.
        is_number: Whether its text is a number of a TOML file, and no text.
        stands_for: What a switch gives the setting; "" for true.
    """

    name: str
    kind: Any
    word: str
    shown: Any
    default: Any = None
    key: str = ""
    is_number: bool = False
    stands_for: str = ""

    def parameter(self) -> Parameter:
        """The parameter of the function that typer sees."""
        annotation = Annotated[self.kind, self.shown]  # type: ignore[name-defined]
        # Keywords may come in any order: a required option may follow one that may be left out.
        return Parameter(self.name, Parameter.KEYWORD_ONLY, default=self.default, annotation=annotation)


def argument(metavar: str, text: str, kind: Any = str, *, name: str = "") -> Option:
    """A required argument."""
    shown = typer.Argument(metavar=metavar, help=text)
    return Option(name or metavar.lower(), kind, metavar, shown, Parameter.empty)


def required(flag: str, metavar: str, text: str, kind: Any = Path) -> Option:
    """A required option."""
    shown = typer.Option(flag, metavar=metavar, help=text)
    return Option(_name_of(flag), kind, flag, shown, Parameter.empty)


def option(flag: str, metavar: str | None, text: str, kind: Any = str, *, name: str = "") -> Option:
    """An option that may be left out, and is then None.

    Args:
        flag: Such as ``--out``.
        metavar: What stands for the value in ``--help``; None shows its type, or the words to choose from.
        text: Its line in ``--help``.
        kind: Type of its value; a list makes the option repeatable.
        name: Name of the value, where that of the flag is a word of Python.
    """
    shown = typer.Option(flag, metavar=metavar, help=text, show_default=False)
    return Option(name or _name_of(flag), kind | None, flag, shown)


def setting(key: str, flag: str, metavar: str | None, text: str, kind: Any = str) -> Option:
    """An option that is short for a setting; left out, the setting decides.

    Args:
        key: Dotted key of the setting, such as ``tune.recipe``.
        flag: As in `option`, and so are the others.
    """
    return replace(option(flag, metavar, text, kind), key=key)


def number(key: str, flag: str, metavar: str, text: str) -> Option:
    """An option that is short for a setting with a number, which the reader of settings checks."""
    return replace(setting(key, flag, metavar, text), is_number=True)


def switch(flag: str, text: str, *, key: str = "", stands_for: str = "") -> Option:
    """An option without a value; that of a setting gives it true, or what it stands for."""
    shown = typer.Option(flag, help=text)
    return Option(_name_of(flag), bool, flag, shown, default=False, key=key, stands_for=stands_for)


def _name_of(flag: str) -> str:
    """The name of a flag's value: ``--dry-run`` gives ``dry_run``."""
    return flag.lstrip("-").replace("-", "_")


# --- Options that several verbs have ---

CONFIG = option("--config", "FILE", "TOML file of settings.", Path)
SET = option(
    "--set",
    "KEY=VALUE",
    "One setting, such as run.device=cpu; overrides --config; repeatable.",
    list[str],
)
SEED = number("run.seed", "--seed", "N", "Seed of every random choice (run.seed). Default: 0.")
DEVICE = setting(
    "run.device",
    "--device",
    None,
    "auto, cpu, cuda or cuda:N (run.device). Default: auto, a GPU if there is one.",
)
SPLIT = setting("data.split", "--split", "NAME", "Split of a BEIR folder or hub data set (data.split).")
BASELINE = option("--baseline", "MODEL", "Model to compare with.")
FUSE = setting(
    "fuse.by",
    "--fuse",
    "BM25",
    "Fuse the ranking by vectors with that of bm25, or of bm25:LANGUAGE with words cut to stems (fuse.by).",
)
RESUME = switch("--resume", "Continue the interrupted run in --out.")
EXIST_OK = switch(
    "--exist-ok", "End at once where --out holds the result of this very command; refuse that of another."
)
AS_JSON = switch("--json", "Print the result as JSON on stdout.")
USUAL = (CONFIG, SET, SEED, DEVICE, EXIST_OK, AS_JSON)
"""The last options of most verbs, in the order of ``--help``."""

TUNING_INPUTS = (
    argument("MODEL", "Model to start from: its query tower is tuned, its document tower made the store."),
    argument("STORE", "Document vectors of this model.", Path),
    argument("DATA", "Queries with positives and, optionally, negatives."),
)
"""Arguments of the verbs that tune, or that say before whether tuning is worth it."""


class Given:
    """What a user gave a verb: the value of each argument and option, as an attribute with its name."""

    def __init__(self, options: Sequence[Option], values: Mapping[str, Any]) -> None:
        """Take the values that typer read."""
        self._options, self._values = options, values

    def __getattr__(self, name: str) -> Any:
        return self._values[name]

    @property
    def exist_ok(self) -> bool | None:
        """True, or None where the function of the verb decides."""
        return self._values["exist_ok"] or None

    def words(self) -> list[str]:
        """The arguments and options that are given, as the user writes them."""
        return [each.word for each in self._options if self._values[each.name] not in (None, False, [])]

    def assignments(self, further: Mapping[str, Any] = NOTHING) -> list[str]:
        """The assignments of ``--set``, then those that other options are short for, and `further` texts by
        their keys.
        """
        texts: dict[str, Any] = {}
        numbers: dict[str, str | None] = {}
        for each in self._options:
            if each.key:
                # A number is left as it was typed, so that the reader tells one that is wrong.
                value = self._values[each.name]
                if value and each.stands_for:
                    value = each.stands_for
                (numbers if each.is_number else texts)[each.key] = value
        return [*(self._values["set"] or ()), *short_for({**texts, **further}, numbers)]

    def settings(self, kind: type[S], further: Mapping[str, Any] = NOTHING) -> S:
        """Settings from the file of ``--config``, then `assignments`."""
        return read_settings(kind, self._values["config"], self.assignments(further))


def verb(*options: Option) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Give a verb its arguments and options, in the order of ``--help``; its function takes them as one
    `Given`.
    """

    def declared(function: Callable[[Given], None]) -> Callable[..., None]:
        @wraps(function)
        def run(**values: Any) -> None:
            function(Given(options, values))

        # typer reads the options from the signature of the function.
        run.__signature__ = Signature([each.parameter() for each in options])  # type: ignore[attr-defined]
        return run

    return declared


def short_for(texts: Mapping[str, Any], numbers: Mapping[str, str | None] = NOTHING) -> list[str]:
    """The ``--set`` assignments equivalent to options.

    Args:
        texts: Setting to the text, texts or true of its option.
        numbers: Setting to the number of its option, read as TOML.
    """
    written = {}
    for key, value in texts.items():
        # A path is written as its text.
        plain = value if isinstance(value, bool | list) else str(value)
        if value not in (None, [], False):
            written[key] = inline(plain)
    raw = {key: value for key, value in numbers.items() if value is not None}
    return [f"{key}={value}" for key, value in {**raw, **written}.items()]


def answer(result: str | dict[str, Any]) -> None:
    """Print machine-readable output on stdout: a text as it is, anything else as JSON.

    Letters that the encoding of the terminal lacks are escaped, so that the JSON can be read anywhere.
    """
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


def show(record: "Record", given: Given, location: Path | str | None) -> None:
    """Print the table and the notes of a record on stderr, and its location on stdout, or with ``--json`` all
    of it with its headline.
    """
    from adiabat.report.pages import notes, terminal_tables

    PEOPLE.print(*terminal_tables(record))
    for sentence in notes(record):
        say(f"note: {sentence}")
    if given.json or location is not None:
        answer(in_json(record) if given.json else str(location))


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
    """A number in the environment; 0 without one."""
    # Launchers state a number; anything else is none of theirs.
    number = os.environ.get(name, "")
    return int(number) if number.isdigit() else 0


def complain(sentence: str) -> None:
    """Print an error, unwrapped, so that it stays one line in a log."""
    # Not through rich, which would wrap it at the width of the terminal.
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
    """Show a warning as a note: of what Python passes, only the message is for the user."""
    say(f"warning: {message}")


PAIRED = {"--retain": "STORE and DATA", "--unlabelled": "DATA and FILE"}
"""Repeatable options of two words, with their names."""


def fold_pairs(arguments: Sequence[str]) -> list[str]:
    """Join ``--retain STORE DATA`` into one value with NUL between, because typer has no repeatable option of
    two values.

    ``--verify``, which every verb takes, moves before the verb.

    Raises:
        ConfigError: If one of `PAIRED` has fewer than two words, or another option follows it.
    """
    words: list[str] = []
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        # What follows is an argument, whatever it looks like.
        if word == "--":
            return [*words, word, *remaining]
        if word == "--verify":
            words.insert(0, word)
            continue
        name, equals, value = word.partition("=")
        if name in PAIRED:
            pair = [value] if equals else remaining[:2]
            if len(pair) < 2 or any(not value or value.startswith("--") for value in pair):
                words_given = shlex.join(pair) or "nothing"
                raise ConfigError(f"{name} takes two words, {PAIRED[name]}, got {words_given}; write both")
            # No path and no name holds a NUL, so the two can be told apart again.
            word, remaining = "\0".join(pair), remaining[2:]
            words.append(name)
        words.append(word)
    return words
