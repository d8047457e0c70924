"""What verbs may be told, as a file."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from adiabat.cli.app import app_of
from adiabat.cli.panel_results import KINDS, kind_of
from adiabat.config.reader import checked, keys_of
from adiabat.config.section import Section
from adiabat.config.settings_template import WIDTH, template
from tests.commands import run_in_process

OF_SEVERAL_TABLES = ("suite", "sweep tune", "sweep train", "scaling", "train", "distill ablate")
"""Verbs whose files have tables that must be filled in, or must lack some of the defaults."""


def uncommented(text: str) -> str:
    """With every key and table that has a value."""
    return re.sub(r"(?m)^#(\[.*|\w+ = .+)$", r"\1", text)


@pytest.mark.parametrize("verb", KINDS)
def test_a_template_reads_as_the_defaults_and_has_every_key(verb: str) -> None:
    kind, text = kind_of(verb), template(kind_of(verb))
    assert checked(kind, tomllib.loads(text)) == kind()
    assert max(map(len, text.splitlines())) <= WIDTH + 60
    for key in keys_of(kind):
        name = key.rpartition(".")[2]
        assert re.search(rf"(?m)^# *([a-z.]+\.)?{name} =|^#?\[+{re.escape(key)}\]", text), key


def switched_off(kind: type[Section], table: dict[str, Any]) -> dict[str, Any]:
    """A table without the optional tables in it, whose keys hold their defaults too."""
    left = dict(table)
    for name, inner in table.items():
        if isinstance(inner, list) and kind.model_fields[name].default == ():
            # An entry of a list of tables needs values that have no default.
            del left[name]
        elif (tables := kind.tables_at(name)) and isinstance(inner, dict):
            left[name] = switched_off(tables[0], inner)
            if kind.model_fields[name].default is None:
                assert name == "judge" or checked(tables[0], inner) == tables[0]()
                del left[name]
    return left


@pytest.mark.parametrize("verb", [verb for verb in KINDS if verb not in (*OF_SEVERAL_TABLES, "plan")])
def test_what_stands_in_comments_is_what_holds(verb: str) -> None:
    kind = kind_of(verb)
    assert checked(kind, switched_off(kind, tomllib.loads(uncommented(template(kind))))) == kind()


@pytest.mark.parametrize("verb", [*OF_SEVERAL_TABLES, "plan"])
def test_what_stands_in_comments_is_toml(verb: str) -> None:
    assert tomllib.loads(uncommented(template(kind_of(verb))))


def test_a_key_is_told_with_its_default_and_what_it_takes() -> None:
    text = template(kind_of("tune"))
    assert "Must be > 0.\n#batch_size = 14\n" in text
    assert "# #schedule" not in text
    assert (
        '`schedule = VALUE` may stand in place of the table, where VALUE is one of "constant", "linear",'
        in text
    )
    assert '\n# kind = "in_batch_softmax": ' in text
    assert "\n#   temperature = 0.05: " in text
    assert 'One of "full", "bias", "lora".\n' in text
    assert '#freeze = ["embeddings"]\n' in text


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command with its options."""
    whole = typer.main.get_command(app_of(""))
    for name, command in whole.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {"": command})
        yield from (
            (f"{name} {one}".strip(), [option.name for option in own.params]) for one, own in inner.items()
        )


def test_every_verb_that_takes_a_file_has_its_settings_shown() -> None:
    takes = {name for name, options in commands() if "config" in options}
    shown = {name for name in takes if name in KINDS or any(kind.startswith(f"{name} ") for kind in KINDS)}
    assert takes - shown == set()
    assert {"tune", "distill fit", "data"} <= takes


def test_the_verb_prints_the_template(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run_in_process(capsys, monkeypatch, ["settings", "distill", "fit"])
    assert (said.code, said.out) == (0, template(kind_of("distill fit")))
    said = run_in_process(capsys, monkeypatch, ["settings", "tuna"])
    assert said.code == 2
    assert said.err.startswith("adiabat: VERB must be one of embed, advise, tune, ")
    assert said.err.endswith("got tuna; choose one\n")
