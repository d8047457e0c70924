"""Settings of earlier versions under the names and in the tables of today.

In 0.2 before its release, a rate search was a word in place of the rate, and the last temperature of a
schedule and the first of a learned one had keys of their own; in a job, tables of all choices stated
every key. In 0.1 a choice was a word with the keys of all its kinds beside it, such as ``loss = "triplet"``
and ``margin = 0.1``; today it is a table.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adiabat.config.distillation import StaticSection
from adiabat.config.dual_training import TrainSection
from adiabat.config.dual_training_data import BatchesSection, MixtureSection
from adiabat.config.reader import inline
from adiabat.config.section import Section, by_kind
from adiabat.config.tuning import TuneSection
from adiabat.core.errors import ConfigError

Keys = tuple[str, ...]
"""Keys of tables that lead to a setting."""

TABLES = {"ladder": "rate_search", "lessons": "data", "distil": "distill", "study": "sweep"}
"""Former and present names of tables."""

SCALING_KEYS = frozenset(("budgets", "least_steps", "last_steps", "resamples"))
"""Keys of the table ``[sweep]`` of 0.1, which is ``[scaling]`` today; the present ``[sweep]`` was
``[study]``."""

KEYS = {
    "distill.side": "distill.tower",
    "rate_search.looks": "rate_search.checks",
    "guard.most": "guard.limit",
    "guard.then": "guard.action",
    "space.map_queries": "space.map.queries",
    "space.perplexity": "space.map.perplexity",
    "measure.measures": "measure.report",
    "tasks.measures": "tasks.report",
    "data.window": "data.stream.shard_size",
    "tune.pull": "tune.l2_to_start",
    "train.loss.temperature.last": "train.loss.temperature.value",
    "train.temperature_schedule": "train.loss.temperature.kind",
    "train.first_temperature": "train.loss.temperature.first",
    "train.temperature_steps": "train.loss.temperature.steps",
    "train.guide": "train.loss.guide.model",
    "train.guide_margin": "train.loss.guide.margin",
    "train.guide_relative": "train.loss.guide.relative",
}
"""Former and present keys."""


def _named(*same: str, **renamed: str) -> dict[str, str]:
    """Former names of keys to those of today, of keys that kept their name and of others."""
    return {name: name for name in same} | renamed


_OF_LOSS = _named(
    "similarity",
    "symmetric",
    "mask_duplicates",
    "same_tower",
    "negatives_per_query",
    "margin",
    "distance",
    "temperature",
    negatives_seen_by="negatives_shared",
    pair_weight="weight",
    pair_printed="printed",
)
_OF_METHOD = _named("rank", "alpha")
_OF_SCHEDULE = _named("gamma", "final_fraction")

CHOICES: Mapping[str, Mapping[str, str]] = {
    "tune.loss": _named("margin", "distance", "temperature"),
    "tune.negatives": _named("difficulty", negatives_per_query="per_query"),
    "tune.method": _OF_METHOD,
    "tune.schedule": _OF_SCHEDULE,
    "tune.batch_scaling": _named("reference_batch_size"),
    "train.loss": _OF_LOSS,
    "train.method": _OF_METHOD,
    "train.schedule": _OF_SCHEDULE,
    "batches.group": _named("random_share", "curriculum_steps"),
    "mixture.rule": _named("temperature"),
    "static.reduction": _named("dims"),
    "static.weighting": _named("corpus", sif="a"),
}
"""Choices that were words: the keys beside each, with their names in its table of today."""

SECTIONS: Mapping[str, type[Section]] = {
    "tune": TuneSection,
    "train": TrainSection,
    "batches": BatchesSection,
    "mixture": MixtureSection,
    "static": StaticSection,
}
"""Tables that have such choices."""


def _beside() -> dict[str, tuple[str, str]]:
    beside: dict[str, tuple[str, str]] = {}
    for choice, names in CHOICES.items():
        table = choice.partition(".")[0]
        beside |= {f"{table}.{former}": (choice, present) for former, present in names.items()}
    return beside


BESIDE = _beside()
"""Each key that stood beside a choice: the choice, and the key of today in its table."""

SWITCHES = ("data.stream", "space.map")
"""Keys that were true or false, and are tables today that are there or not."""

SWITCHED_BY = {"data.window": "stream", "space.map_queries": "map", "space.perplexity": "map"}
"""Keys that had an effect only with a key beside them."""

SWITCHED = ("guard", "rehearsal", "probes")
"""Tables that ``use`` switched on or off."""

NO_LONGER = ("compare", "candidates", "study.lanes")
"""Tables and keys without a counterpart."""

WITHOUT_RECIPE = frozenset(("recipe", "learning_rate", "loss", "negatives"))
"""Keys of ``[tune]`` without which a job takes the recipe ``quick`` today; in 0.1 it took what is ``paper``
today."""


def present_key(former: str, known: Collection[str]) -> str | None:
    """The key of today for the last part of a former one, if it is among those `known`."""
    present = {**TABLES, **KEYS, **{key: f"{choice}.{name}" for key, (choice, name) in BESIDE.items()}}
    for key, target in present.items():
        if key.rpartition(".")[2] == former and target in known:
            return target
    return None


@dataclass(slots=True)
class Conversion:
    """Present settings.

    Attributes:
        moved: Former keys of each setting that moved, and its present ones; None for one that had no effect
            and is left out.
    """

    tables: dict[str, Any] = field(default_factory=dict)
    moved: dict[Keys, Keys | None] = field(default_factory=dict)

    def changes(self) -> list[str]:
        """A phrase for each change."""
        phrases = []
        for former, present in self.moved.items():
            change = "is left out" if present is None else f"is now {_dotted(present)}"
            phrases.append(f"{_dotted(former)} {change}")
        return phrases

    def value(self, keys: Keys) -> Any:
        """The value of a present setting."""
        return _value_at(self.tables, keys)

    def _put(self, former: Keys, present: Keys | None, value: Any) -> None:
        """Set a present setting, and note its former keys where they differ; None leaves it out."""
        if former != present:
            self.moved[former] = present
        if present is None:
            return
        table = self.tables
        for key in present[:-1]:
            table = table.setdefault(key, {})
        table[present[-1]] = value


def present_settings(former: Mapping[str, Any], *, is_job: bool = False) -> Conversion:
    """Convert the tables of a settings file, or of a job, to those of today; settings of today stay.

    Example: ``[tune] loss = "triplet"`` with ``margin = 0.1`` beside it becomes ``[tune.loss]`` with ``kind =
    "triplet"`` and ``margin = 0.1``; ``pull = 0.5`` becomes ``l2_to_start = 0.5``.

    Args:
        is_job: Whether every setting is stated, as in the directory of a job.

    Raises:
        ConfigError: If a table has no counterpart today.
    """
    if lost := [name for name in NO_LONGER if _value_at(former, name) is not None]:
        raise ConfigError(
            f"{lost[0]} must be left out, got a setting of adiabat 0.1 without a "
            "counterpart; see adiabat settings sweep"
        )
    present = Conversion()
    # A rate that was a word asked for a search, whose keys count then.
    has_rate = isinstance(_value_at(former, "tune.learning_rate"), float | int)
    for name, value in former.items():
        if isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
            present.tables[name] = [_entry(present, name, entry) for entry in value]
        elif isinstance(value, Mapping) and name == "grid":
            present.tables[name] = _inner(present, value, (name,))
        elif isinstance(value, Mapping) and name == "common":
            # What the runs of an experiment have in common.
            present.tables[name] = present_settings(value).tables
        elif TABLES.get(name, name) == "rate_search" and has_rate:
            # Jobs stated the keys of a search beside a rate.
            present.moved |= {(name, *keys): None for keys, _ in _leaves(value)}
        elif isinstance(value, Mapping):
            _convert_table(present, former, name)
        else:
            present.tables[name] = value
    tune = present.tables.get("tune")
    if isinstance(tune, dict):
        chosen = WITHOUT_RECIPE & tune.keys() or present.value(("rate_search", "kind"))
        needs_recipe = bool(present.moved) and not chosen
        if is_job or needs_recipe:
            tune.setdefault("recipe", "paper")
    return present


def _convert_table(present: Conversion, former: Mapping[str, Any], name: str) -> None:
    """Convert one table, whose name may have changed too."""
    table = former[name]
    new = "scaling" if name == "sweep" and SCALING_KEYS & table.keys() else TABLES.get(name, name)
    if new != name:
        present.moved[(name,)] = (new,)
    if name in SWITCHED and "use" in table:
        present.moved[(name, "use")] = None
        if not table["use"]:
            _switch_off(present, name, table)
            return
        present.tables.setdefault(name, {})
    # A table without keys stands for its defaults.
    present.tables.setdefault(new, {})
    for keys, value in _leaves(table):
        if (name, *keys) not in present.moved:
            _move(present, former, (name, *keys), (new, *keys), value)


def _switch_off(present: Conversion, name: str, table: Mapping[str, Any]) -> None:
    """A table that was off has no settings; `probes` are on unless they are switched off."""
    present.moved |= {(name, *keys): None for keys, _ in _leaves(table)}
    if name == "probes":
        present.tables[name] = False


def _move(present: Conversion, former: Mapping[str, Any], keys: Keys, renamed: Keys, value: Any) -> None:
    """Put one setting in its present place.

    Args:
        former: All former tables: what a key means depends on others beside it.
        keys: Keys that led to the setting.
        renamed: The same with the table of today.
    """
    place = _dotted(renamed)
    if place in SWITCHES and isinstance(value, bool):
        present.moved[keys] = None
        if value:
            present.tables[renamed[0]].setdefault(renamed[1], {})
    elif place in SWITCHED_BY and not former[keys[0]].get(SWITCHED_BY[place]):
        # A table of today would switch on what was off.
        present._put(keys, None, value)
    elif place == "tune.learning_rate" and isinstance(value, str):
        present._put(keys, ("rate_search", "kind"), value)
    elif (
        place == "train.loss.temperature.first"
        and _value_at(former, "train.loss.temperature.kind") == "learned"
    ):
        present._put(keys, (*keys[:-1], "value"), value)
    elif place == "train.temperature":
        divisor = ("train", "loss", "temperature", "value")
        present._put(keys, divisor if _has_loss_key(former["train"], divisor) else None, value)
    elif place in KEYS:
        target = tuple(KEYS[place].split("."))
        kept = not place.startswith("train.") or _has_loss_key(former["train"], target)
        present._put(keys, target if kept else None, value)
    elif place in CHOICES and isinstance(value, str):
        # The word alone is the short form of today.
        has_keys = any(_value_at(former, f"{keys[0]}.{name}") is not None for name in _keys_beside(place))
        present._put(keys, (*renamed, "kind") if has_keys else renamed, value)
    elif place == "measure.margin" and isinstance(value, str):
        share, difference = _margin(value)
        target = renamed if difference is None else (renamed[0], "margin_absolute")
        present._put(keys, target, share or difference)
        # The line changes also where the key does not.
        present.moved[keys] = target
    elif place in BESIDE:
        choice, name = BESIDE[place]
        # Today's key is true or false: whether all queries share a listed negative.
        shared = value == "all" if name == "negatives_shared" and isinstance(value, str) else value
        present._put(keys, (*choice.split("."), name) if _knows(former, choice, name) else None, shared)
    else:
        present._put(keys, renamed, value)


def _margin(value: str) -> tuple[float | None, float | None]:
    """A margin that was a text: a share ("1 %"), or a difference with its measure ("0.01 nDCG")."""
    form = re.fullmatch(r"\s*([0-9.]+(?:[eE]-?[0-9]+)?)\s*(%|[A-Za-z].*)?", value)
    if form is None:
        raise ConfigError(f"measure.margin must be a share such as 0.01, got {value!r}; write one")
    # A unit other than % was the name of the measure: the number is a difference of it.
    number, unit = float(form[1]), form[2] or ""
    if unit == "%":
        return number / 100, None
    return (None, number) if unit else (number, None)


def _keys_beside(choice: str) -> set[str]:
    """Keys that belonged to a choice and stood beside it."""
    beside = set(CHOICES[choice])
    if choice == "train.loss":
        beside |= {
            key.partition(".")[2] for key, present in KEYS.items() if present.startswith("train.loss.")
        }
    return beside


def _has_loss_key(train: Mapping[str, Any], target: Keys) -> bool:
    """Whether the loss has a key of today, such as ``temperature.steps``, with the former settings beside
    it.
    """
    if target[1] != "loss" or not isinstance(train.get("loss", ""), str):
        return True
    loss = by_kind(TrainSection.tables_at("loss")).get(train.get("loss", "in_batch_softmax"))
    if loss is None or target[2] not in loss.model_fields:
        return False
    if target[2] == "temperature":
        schedule = train.get("temperature_schedule", "fixed")
        return target[3] == "kind" or _has_effect(loss, "temperature", schedule, target[3])
    # The keys of a guide need a guide.
    return target[2] != "guide" or "guide" in train


def _knows(former: Mapping[str, Any], choice: str, name: str) -> bool:
    """Whether the chosen kind has a key; keys of other kinds stood beside it without effect."""
    table, key = choice.split(".")
    section = SECTIONS[table]
    kind = former[table].get(key)
    if not isinstance(kind, str):
        kind = section.model_fields[key].default.kind
    return _has_effect(section, key, str(kind), name)


def _has_effect(section: type[Section], key: str, kind: str, name: str) -> bool:
    """Whether a setting has an effect in a table of a kind.

    Args:
        section: Section that has the table as its setting `key`.
        name: The setting in that table.
    """
    of_kind = by_kind(section.tables_at(key)).get(kind)
    if of_kind is None:
        # A kind that is unknown is told by the reader.
        return True
    return name in of_kind.model_fields and name not in of_kind.model_construct(kind=kind).unmet()


def _inner(present: Conversion, tables: Mapping[str, Any], prefix: Keys) -> dict[str, Any]:
    """Tables of runs in a grid or a variant; a grid has lists of values, so nothing is left out of it."""
    inner = Conversion()
    for keys, value in _leaves(tables):
        place = _dotted(keys)
        target = KEYS.get(place)
        if target is None and place in BESIDE:
            target = ".".join(BESIDE[place])
        inner._put(keys, keys if target is None else tuple(target.split(".")), value)
    for former, moved in inner.moved.items():
        present.moved[(*prefix, *former)] = None if moved is None else (*prefix, *moved)
    return inner.tables


def _entry(present: Conversion, name: str, entry: Any) -> Any:
    """One table of a list."""
    if not isinstance(entry, Mapping):
        return entry
    if name == "variants":
        grid = entry.get("grid")
        converted = _inner(present, {key: value for key, value in entry.items() if key != "grid"}, (name,))
        return converted if grid is None else {**converted, "grid": _inner(present, grid, (name, "grid"))}
    renamed = {}
    for key, value in entry.items():
        target = KEYS.get(f"{name}.{key}", f"{name}.{key}").removeprefix(f"{name}.")
        if target != key:
            present.moved[(name, key)] = (name, target)
        renamed[target] = value
    return renamed


def _leaves(table: Mapping[str, Any], prefix: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Each setting of nested tables with the keys that lead to it; an empty table is one."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


def _value_at(tables: Any, keys: Keys | str) -> Any:
    """The value of a key, which may be dotted; None if there is none."""
    for name in keys.split(".") if isinstance(keys, str) else keys:
        tables = tables.get(name) if isinstance(tables, Mapping) else None
    return tables


def _dotted(keys: Keys) -> str:
    return ".".join(keys)


_HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_.\-]+)\s*\]\]?\s*(#.*)?")
_SETTING = re.compile(r"(\s*)([A-Za-z0-9_.\-]+)(\s*=.*)", re.DOTALL)


def with_comments(text: str, conversion: Conversion) -> str | None:
    """A settings file with its comments, under the present names; None if a conversion line by line does not
    give these settings.

    A line is a header, one setting, or anything else, which stays. A setting over several lines, or a table
    in braces, is beyond it: the result then differs from the conversion, and None says so.
    """
    lines: list[str] = []
    header: tuple[str, ...] = ()
    for line in text.splitlines(keepends=True):
        if found := _HEADER.fullmatch(line.rstrip("\r\n")):
            header = tuple(found[1].split("."))
            present = conversion.moved.get(header[:1]) or header[:1]
            line = line.replace(header[0], present[0], 1)
            # An empty table would switch on what was off.
            lines.append(line if present[0] in conversion.tables else f"{_LEFT_OUT}{line.lstrip()}")
        elif (found := _SETTING.fullmatch(line)) is None:
            lines.append(line)
        else:
            keys = (*header, *found[2].split("."))
            lines += _moved_line(line, found, keys, header, conversion)
    if "recipe" not in text and (recipe := conversion.value(("tune", "recipe"))):
        lines = _with_setting(lines, "tune", f"recipe = {inline(recipe)}\n")
    if ("tune", "learning_rate") in conversion.moved:
        kind = conversion.value(("rate_search", "kind"))
        lines = _with_setting(lines, "rate_search", f"kind = {inline(kind)}\n")
    written = "".join(lines)
    try:
        # The proof: the lines say what the conversion says, whatever their layout was.
        return written if tomllib.loads(written) == conversion.tables else None
    except tomllib.TOMLDecodeError:
        return None


# Stands before a line that has no counterpart, so that the user sees what went.
_LEFT_OUT = "# left out by adiabat upgrade: "


def _with_setting(lines: list[str], table: str, setting: str) -> list[str]:
    """Lines of a file with a further setting in a table: below its header, or in a new one at the end."""
    header = re.compile(rf"\s*\[{table}\]\s*(#.*)?")
    if not any(header.fullmatch(line.rstrip()) for line in lines):
        return [*lines, f"\n[{table}]\n", setting]
    return [f"{line}{setting}" if header.fullmatch(line.rstrip()) else line for line in lines]


def _moved_line(
    line: str, found: "re.Match[str]", keys: Keys, header: Keys, conversion: Conversion
) -> list[str]:
    """A line of a setting under its present key; one that is left out becomes a comment."""
    # A line that says the same today stays as it is, with its comment.
    if keys not in conversion.moved:
        return [line]
    present = conversion.moved[keys]
    if present is None:
        return [f"{_LEFT_OUT}{line.lstrip()}"]
    if present[0] != keys[0] and (present[0],) not in conversion.moved.values():
        # In another table, which `with_comments` adds to.
        return [f"# now {_dotted(present)}: {line.lstrip()}"]
    top = conversion.moved.get(header[:1]) or header[:1]
    above = (*top, *header[1:])
    if present[: len(above)] != above:
        return [line]
    key, value = ".".join(present[len(above) :]), conversion.value(present)
    if isinstance(value, bool | float) and ('"' in found[3] or "'" in found[3]):
        # A text that is true, false or a number today.
        return [f"{found[1]}{key} = {inline(value)}  # was {line.strip()}\n"]
    return [f"{found[1]}{key}{found[3]}"]
