"""A script that runs twice: `exist_ok` returns the finished result of the same call, and refuses that of
another.

Beside its output, each call leaves ``.call.json``: the verb, its arguments and settings, and the digests of
its inputs.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from adiabat.api.call import Call, Progress, called
from adiabat.api.with_page import with_page
from adiabat.config.section import Section
from adiabat.core.disk import real
from adiabat.core.errors import ConfigError, DataError, JobError, several
from adiabat.core.files import MANIFEST_FILE, is_store, read_json, write_json
from adiabat.core.provenance import CHECKSUMS, digest_of
from adiabat.core.wording import option
from adiabat.data.sources import Source
from adiabat.results.record import Record, read_result
from adiabat.runs.run_config import is_described

RECORD = ".call.json"
FORMAT = 1

PATHS = {
    "corpus",
    "data",
    "document_model",
    "guide",
    "model",
    "models",
    "pairs",
    "parallel",
    "path",
    "probes",
    "projection_start",
    "queries",
    "reranker",
    "runs",
    "store",
    "stores",
    "student",
    "suite",
    "targets",
    "teachers",
    "test",
    "texts",
    "validation",
    "vocabulary",
}
"""Last parts of settings that may name a file or folder, whose content counts."""

RecordT = TypeVar("RecordT", bound=Record)


@dataclass(frozen=True)
class Asked:
    """A call of a verb that writes `out`.

    Attributes:
        out: The directory, or the file; None writes nothing.
        exist_ok: True takes up or returns what the same call left, False refuses any output, None leaves it
            to the verb.
        proof_name: The file of the output whose content shows that no other call has changed it.
        replaces: Whether the verb replaces earlier results unseen; other verbs compare or refuse what is
            there themselves.
        arguments: Arguments of the verb by name: paths, loaded models, settings, or plain values, and lists
            of them.
    """

    verb: str
    out: Path | None
    exist_ok: bool | None
    settings: Section | None
    proof_name: str
    replaces: bool
    arguments: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        verb: str,
        out: str | Path | None,
        exist_ok: bool | None,
        *,
        settings: Section | None,
        proof: str = "result.json",
        replaces: bool = False,
        **arguments: Any,
    ) -> "Asked":
        """Take the call; `proof` is a file in `out`, or "" where `out` itself is one."""
        if exist_ok is not None and out is None:
            raise ConfigError(
                f"{option('exist_ok')} is about the directory in {option('out')}, "
                "got none; name one, or leave it out"
            )
        folder = None if out is None else Path(out)
        return cls(verb, folder, exist_ok, settings, proof, replaces, arguments)

    @property
    def proof(self) -> Path:
        """The file that shows whether the output is still that of the recorded call."""
        assert self.out is not None, "a call without output leaves no proof"
        return self.out / self.proof_name

    def is_finished(self, *, resume: bool | None = None) -> bool:
        """Whether the output is that of this very call; another one is refused, where the call asks for that.

        An explicit `resume` decides itself which changes it takes; None is that of a verb without it.
        """
        # Without the argument the verb itself decides what is to be done with an output.
        if self.exist_ok is None or self.out is None or not _holds_something(self.out):
            return False
        if not self.exist_ok:
            raise JobError(
                f"{option('out')} must be new or empty with exist_ok=False, {self.out} is not; choose another"
            )
        # None for an output of an unfinished call, or one that was changed since.
        before = self._before()
        if before is None:
            # Other verbs refuse such an output, or go on with it, by rules of their own.
            if self.replaces and self.proof.exists():
                raise JobError(
                    f"{option('out', self.out)} holds a result whose call is not recorded; "
                    "choose another directory, or remove it"
                )
            return False
        # A resumed run may have changes that it takes, such as more epochs; the verb compares them.
        differing = list(self._differences(before))
        if differing and not resume:
            told = several(differing, of="differences")
            further = "" if resume is None else f", extend it with {option('resume', True)}"
            advice = f"repeat that call{further}, or choose another directory"
            raise JobError(f"{option('out', self.out)} holds the result of another call: {told}; {advice}")
        return not differing

    def result(self, kind: type[RecordT]) -> RecordT:
        """The result of the finished call."""
        return with_page(read_result(self.proof, kind), self.proof.parent)

    def resumes(self, table: str) -> bool:
        """Whether an unfinished run in the directory is resumed; its configuration has this table."""
        return self.exist_ok is True and self.out is not None and is_described(self.out, table)

    @contextmanager
    def carried_out(self, progress: Progress) -> Iterator[Call]:
        """The call while it does its work: inputs are digested before, and the call is recorded after it."""
        self.take_digests()
        with called(self.verb, progress) as call:
            yield call
        self.remember()

    def remember(self) -> None:
        """Write the record of the finished call."""
        if self.out is None:
            return
        # On a full disk the result stands, and only a repeated call knows nothing of it.
        with suppress(DataError):
            write_json({"format": FORMAT, "proof": content_of(self.proof), **self._described}, self._record)

    @property
    def _record(self) -> Path:
        assert self.out is not None
        return (
            real(self.out) / RECORD if self.out.is_dir() else self.out.with_name(f".{self.out.name}{RECORD}")
        )

    @cached_property
    def _described(self) -> dict[str, Any]:
        """Arguments and settings with the digests of what they name, taken before the work."""
        arguments: dict[str, Any] = {}
        for name, value in self.arguments.items():
            # Settings as an argument, such as a suite, name files of their own.
            if isinstance(value, Section):
                arguments |= {f"{name}.{key}": content for key, content in _with_contents(value).items()}
            else:
                arguments[name] = _named(value)
        return {"verb": self.verb, "arguments": arguments, "settings": _with_contents(self.settings)}

    def take_digests(self) -> None:
        """Digest the inputs now: a run may take hours, in which they may change."""
        if self.out is not None:
            _ = self._described

    def _before(self) -> dict[str, Any] | None:
        """The record of the finished call whose output is there; None if there is none, or the output has
        changed since.
        """
        if not self._record.is_file():
            return None
        record = read_json(self._record, remedy="remove it: the call is then made again", error=JobError)
        is_ours = (
            record.get("format") == FORMAT
            and self.proof.exists()
            and record.get("proof") == content_of(self.proof)
        )
        return record if is_ours else None

    def _differences(self, before: Mapping[str, Any]) -> Iterator[str]:
        # Arguments of two verbs cannot be compared.
        if before["verb"] != self.verb:
            yield f"it is of {before['verb']}, not {self.verb}"
            return
        former, present = before["arguments"], self._described["arguments"]
        for name in sorted({*former, *present}):
            yield from _change(name, former.get(name), present.get(name))
        defaults = {} if self.settings is None else _with_contents(type(self.settings)())
        former, present = before["settings"], self._described["settings"]
        for key in sorted({*former, *present}):
            # Settings that came with a later version had their defaults.
            yield from _change(key, former.get(key, defaults.get(key)), present.get(key))


def _holds_something(out: Path) -> bool:
    return any(out.iterdir()) if out.is_dir() else out.exists()


def _with_contents(settings: Section | None) -> dict[str, Any]:
    """Settings by dotted key, those that name files with their content; without the directory of the run."""
    contents: dict[str, Any] = {}
    for key, value in _leaves({} if settings is None else settings.model_dump(mode="json")):
        name = key.rpartition(".")[2]
        if name != "out":
            contents[key] = _named(value) if name in PATHS else value
    return contents


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting by its dotted key, also those in lists of tables, which are numbered from 1; without
    None.
    """
    for name, value in table.items():
        key, entries = f"{prefix}{name}", value
        if isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
            entries = {str(number): entry for number, entry in enumerate(value, start=1)}
        if isinstance(entries, Mapping):
            yield from _leaves(entries, f"{key}.")
        elif value is not None:
            yield key, value


def _named(value: Any) -> Any:
    """A value for the record: what a file, folder or model is called, with the digest of its content; lists
    entry by entry.
    """
    if isinstance(value, list | tuple):
        return [_named(entry) for entry in value]
    # A loaded model has no path; the fingerprints of its towers cover weights, tokenizer and prompts.
    if hasattr(value, "fingerprints"):
        sides = [each.to_json() for each in value.fingerprints()]
        return {
            "name": value.name,
            "content": hashlib.sha256(json.dumps(sides, sort_keys=True).encode()).hexdigest(),
        }
    if not isinstance(value, str | os.PathLike):
        return value
    name = os.fspath(value)
    # The embedded model has one content.
    path = Source.of(name).path
    if name in ("", "demo") or not Path(path).exists():
        return {"name": name, "content": None}
    # The split and the columns behind the path count too.
    return {"name": name, "content": content_of(Path(path)) + name.removeprefix(path)}


def content_of(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder; stores and jobs have digests of their own, which stand
    for their files.
    """
    if path.is_file():
        return digest_of(path).sha256
    own = path / (MANIFEST_FILE if is_store(path) else CHECKSUMS)
    if own.is_file():
        files = [own]
    else:
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file, path)]
    digests = [(str(file.relative_to(path)), digest_of(file).sha256) for file in files]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _is_same(before: Any, now: Any) -> bool:
    """Equal contents are equal, whatever they are called."""
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_is_same, before, now))
    if isinstance(before, Mapping) and isinstance(now, Mapping) and "content" in before and "content" in now:
        # A file that was moved is the same; a name without a file is compared as a name.
        if before["content"] is not None or now["content"] is not None:
            return bool(before["content"] == now["content"])
        return bool(before["name"] == now["name"])
    return bool(before == now)


def _told(value: Any) -> str:
    """A recorded value for a message."""
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"])
    if isinstance(value, list):
        return f"[{', '.join(map(_told, value))}]"
    return "not set" if value is None else repr(value)


def _change(name: str, before: Any, now: Any) -> Iterator[str]:
    if not _is_same(before, now):
        was, changed = _told(before), _told(now)
        yield (
            f"the content of {name} ({was}) has changed"
            if was == changed
            else f"{name} was {was}, is {changed}"
        )
