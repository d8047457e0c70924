"""Checks of an evaluation by its settings and paths, before torch is loaded."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adiabat.config.tasks import AnyTask, SuiteSettings
from adiabat.core.errors import AdiabatError, ConfigError, DataError, require_packages, several
from adiabat.core.wording import option
from adiabat.data.examples import require_columns, source_identity
from adiabat.data.folders import require_there
from adiabat.data.sources import Source, with_split
from adiabat.models.model_paths import require_names, require_reachable
from adiabat.store.addressing import require_inputs
from adiabat.store.vector_store import require_readable

STORES = "baseline_stores"
"""Argument of the stores of a baseline in `evaluate`."""


def require_sets(
    sets: Sequence[tuple[str, str]], splits: Sequence[str | None], columns: Mapping[str, str]
) -> None:
    """Check that every store and data set is there, and that each retention set is another one than the
    target.

    `columns` are those that settings name, of the target.
    """
    examples = [with_split(data, split) for (_, data), split in zip(sets, splits, strict=True)]
    require_inputs(examples, stores=[store for store, _ in sets])
    require_other_data(sets, splits)
    for number, (_, data) in enumerate(sets):
        require_columns(data, {} if number else columns)


def require_other_data(sets: Sequence[tuple[str, str]], splits: Sequence[str | None]) -> None:
    """A retention set must be neither the target itself, whose change it would repeat, nor another retention
    set.
    """
    if len(sets) == 1:
        return
    # One file may hold two sets in different columns.
    target, *retained = (
        (os.path.realpath(store), *source_identity(data, split), Source.of(data).columns)
        for (store, data), split in zip(sets, splits, strict=True)
    )
    if target in retained:
        raise ConfigError(
            f"{option('retain')} must be another data set than the target, got "
            f"{sets[0][1]} for both; leave it out"
        )
    repeated = [data for number, (_, data) in enumerate(sets[1:]) if retained[number] in retained[:number]]
    if repeated:
        raise ConfigError(
            f"{option('retain')} must name each data set once, got {repeated[0]} twice; leave one out"
        )


def require_baseline_stores(paths: Sequence[str | Path], *, baseline: bool, argument: str = STORES) -> None:
    """Check the stores in which a baseline may find its documents, given by an argument of this name."""
    if paths and not baseline:
        given = ", ".join(map(str, paths))
        raise ConfigError(
            f"{option(argument)} must come with {option('baseline')}, got {given} alone; name the baseline"
        )
    for path in paths:
        require_readable(path)


def require_maps() -> None:
    """Refuse a map where t-SNE is not installed."""
    require_packages(["openTSNE"], extra="maps", purpose="space.map")


def require_suite(settings: SuiteSettings, names: Sequence[str]) -> None:
    """Check that the models, data and stores of a suite are there, and that mteb is installed where a task is
    its own.
    """
    if not settings.tasks:
        raise ConfigError("tasks must be given, got none; list them under [[tasks]]")
    listed = list[str]()
    for section in settings.models:
        listed += [section.model, *section.runs]
    models = [name for name in dict.fromkeys([*listed, *names]) if not is_bm25(name)]
    require_baseline(settings, [*(section.name for section in settings.models), *names])
    # Names first, which cost nothing; reaching models may wait for the network.
    require_names(*models)
    if any(task.kind == "mteb" for task in settings.tasks):
        require_mteb()
    require_tasks(settings.tasks)
    require_reachable(*models)


def require_baseline(settings: SuiteSettings, names: Sequence[str]) -> None:
    """Refuse a baseline that is none of the models."""
    if settings.suite.baseline not in (None, *names):
        raise ConfigError(
            f"suite.baseline must be the name of a model, got {settings.suite.baseline}; "
            f"the models are {', '.join(names)}"
        )


def require_tasks(tasks: Sequence[AnyTask]) -> None:
    """Check that the data, corpora and stores of tasks are there; all faults are raised together."""
    faults: list[str] = []
    for task in tasks:
        with gathering(faults, task):
            for name in ("data", "test", "corpus"):
                if (source := getattr(task, name, None)) is not None:
                    require_there(source)
            for store in getattr(task, "stores", ()):
                require_readable(store)
    if faults:
        raise DataError(several(faults))


@contextmanager
def gathering(faults: list[str], section: Any) -> Iterator[None]:
    """Collect a fault of a task; the readers' advice takes the names of task settings."""
    try:
        yield
    except AdiabatError as fault:
        # Readers name settings of a single data set.
        message = re.sub(r"\bdata\.(blank|missing|ids|columns|split)\b", r"tasks.\1", str(fault))
        faults.append(f"{label_of(section)}: {message}")


def label_of(section: Any) -> str:
    """The name of a task in messages."""
    return f"task {section.name or getattr(section, 'data', '') or section.task}"


def require_mteb() -> None:
    """Refuse tasks of mteb where it is not installed."""
    require_packages(["mteb"], extra="mteb", purpose="a task of mteb")


BM25 = "bm25"
"""Name of BM25 among models. ``bm25:LANGUAGE`` reduces words to stems."""


def is_bm25(model: str) -> bool:
    """Whether a model's name means BM25."""
    return model.partition(":")[0] == BM25
