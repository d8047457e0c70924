"""`adiabat.mine`, `.inspect` and `.make`: hard negatives, data profiles, and known data sets from their
published files.

Each function imports its implementation when it is called: without a model, profiles and data sets do not
need torch, which takes seconds to load.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adiabat.api.arguments import (
    Data,
    PathLike,
    SettingsLike,
    data_of,
    optional_name,
    optional_path,
    optional_place,
    path_of,
    place_of,
    require_model,
    settings_of,
)
from adiabat.api.call import Progress, called
from adiabat.api.repeated import Asked
from adiabat.config import dataset_settings
from adiabat.config.dataset_settings import InspectSettings, MineSettings
from adiabat.config.section import Section
from adiabat.config.shared import require_device_name
from adiabat.core.errors import ConfigError
from adiabat.core.wording import option, positional
from adiabat.data.folders import require_there
from adiabat.datasets.writer import RECORD, read_summary
from adiabat.mining.mine_checks import require_minable, statistics_path
from adiabat.models.model_paths import require_names, require_reachable
from adiabat.runs.output_dir import require_free
from adiabat.store.vector_store import require_readable

if TYPE_CHECKING:
    from adiabat.core.progress import Watch
    from adiabat.datasets.writer import DatasetSummary
    from adiabat.mining.mine import Mining
    from adiabat.models.model_paths import Model
    from adiabat.models.towers import DualEncoder
    from adiabat.profiling.profile_record import Inspection
    from adiabat.results.power_record import Power


def mine(
    data: Data,
    corpus: Data,
    out: PathLike,
    *,
    model: PathLike | None = None,
    store: PathLike | None = None,
    index: PathLike | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> "Mining":
    """Find hard negatives: documents of a corpus that rank high for a query and are not among its answers.

    Args:
        data: Queries with positives.
        corpus: Source of the negatives; a corpus, or a store that keeps its texts.
        out: File of the examples with their negatives: ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``;
            statistics are written beside it.
        model: Model whose towers rank candidates if ``source`` is ``dense`` or ``fused``.
        store: Vectors of the corpus by that model.
        index: Directory in which the BM25 index is kept for other runs; None discards it.
        exist_ok: True returns the result of the same call at once, as in `tune`. None resumes an interrupted
            call, and refuses a finished file.
        settings: `MineSettings`, a TOML file or nested dicts; ``adiabat settings mine`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``source="dense"`` or ``relative_margin=0.05``. Of the optional
            table ``judge``, None keeps what `settings` say, False switches it off, and the name of a model or
            a dict switches it on.

    Returns:
        Files and counts; other functions take it in place of the mined file.

    Example:
        >>> mined = adiabat.mine([{"query": "document 3", "pos": ["d3"]}], "corpus.jsonl", out="mined.jsonl")
        >>> mined.out.exists()
        True
    """
    chosen = settings_of(MineSettings, settings, options, section="mine", function="mine")
    target, name = place_of(out), optional_name(model, "model")
    folder, kept = optional_path(store, "store"), optional_place(index, "index")
    require_names(name)
    require_device_name(chosen.run.device)
    sources = data_of(data, "data"), data_of(corpus, "corpus")
    inputs: dict[str, Any] = {"data": sources[0], "corpus": sources[1], "model": name, "store": folder}
    asked = Asked.of(
        "mine", target, exist_ok, settings=chosen, proof=str(statistics_path(target).absolute()), **inputs
    )
    if asked.is_finished():
        from adiabat.mining.mine import mined_before

        return mined_before(target, chosen)
    require_minable(*sources, target, model=name, store=folder, index=kept, settings=chosen)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.mining.mine import mine as mine_negatives
    from adiabat.models.device import device_of
    from adiabat.models.model_names import load_with

    device_of(chosen.run.device)
    with asked.carried_out(progress) as call:
        mined = mine_negatives(
            *sources,
            target,
            load=partial(load_with, device=chosen.run.device),
            model=name,
            store=folder,
            index=kept,
            settings=chosen,
            command=call.command,
            watch=call.watch,
        )
    return mined


def inspect(
    data: Data,
    *,
    model: "Model | None" = None,
    store: PathLike | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> "Inspection":
    """Profile a data set: counts, lengths, duplicates, languages, topics, and faults by line.

    Args:
        data: Examples, a corpus, a BEIR folder or a language grid; or rows in memory.
        model: Model whose towers count tokens; None counts words and characters.
        store: Document vectors of the model, to predict which improvement of it the queries could show; None
            predicts nothing.
        settings: `InspectSettings`, a TOML file or nested dicts; ``adiabat settings inspect`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``split="train"``.

    Returns:
        The profile; faults of single rows are part of it.

    Raises:
        AdiabatError: If the data cannot be read, or a setting has no effect.

    Example:
        >>> adiabat.inspect([{"query": "What is a graph?", "positive": "Nodes and edges."}]).rows
        1
    """
    chosen = settings_of(InspectSettings, settings, options, section="inspect", function="inspect")
    from adiabat.profiling.profile import inspect as inspect_data

    tokens = loaded = None
    if store is not None and model is None:
        advice = f"add {option('model', 'MODEL')}, or leave out {option('store')}"
        raise ConfigError(f"a store needs the model whose queries are ranked in it, got none; {advice}")
    source = data_of(data, "data")
    require_there(source)
    if store is not None:
        require_readable(path_of(store, "store"))
    if model is not None:
        require_model(model, "model")
        require_names(model)
        require_reachable(model)
        from adiabat.models.model_names import load
        from adiabat.profiling.text_lengths import ModelTokens

        loaded = load(model, settings=chosen.encoder)
        tokens = ModelTokens(loaded)
    with called("inspect", progress) as call:
        inspection = inspect_data(source, settings=chosen, tokens=tokens, watch=call.watch)
        if store is None or loaded is None or inspection.faults:
            return inspection
        return replace(
            inspection,
            power=_power(loaded, path_of(store, "store"), source, chosen, inspection.layout, call.watch),
        )


def _power(
    model: "DualEncoder", path: str, source: str, settings: InspectSettings, layout: str, watch: "Watch"
) -> "Power":
    """What the queries of a data set without faults could show of a tuning of the model."""
    from adiabat.config.shared import MeasureSection
    from adiabat.data.examples import read_examples
    from adiabat.data.records import ExampleSet
    from adiabat.evaluation.set_power import model_power
    from adiabat.profiling.row_reader import USUAL_SPLIT
    from adiabat.store.addressing import address
    from adiabat.store.vector_store import Store

    if layout not in ("examples", "BEIR folder"):
        raise ConfigError(
            f"{option('store')} ranks queries with known positives, got the {layout} {source}; leave it out"
        )
    store = Store.open(path)
    # Topics and tags play no part here.
    columns = {
        name: column for name, column in settings.data.columns.given().items() if name not in ("topic", "tag")
    }
    examples = read_examples(source, split=settings.data.split, columns=columns, usual_split=USUAL_SPLIT)
    assert isinstance(examples, ExampleSet), "a language grid is no example"
    addressed = address(examples, store, missing="drop", merge_equal=True)
    for note in addressed.notes:
        watch.note(note)
    return model_power(model, store, addressed, settings=MeasureSection(), watch=watch)


MAKERS: Mapping[str, tuple[type[Section], str]] = {
    "msmarco": (dataset_settings.MsmarcoSettings, "msmarco"),
    "squad": (dataset_settings.SquadSettings, "squad"),
    "hotpotqa": (dataset_settings.HotpotqaSettings, "hotpotqa"),
    "xnli": (dataset_settings.XnliSettings, "xnli"),
    "arxiv-negatives": (dataset_settings.ArxivSettings, "arxiv"),
}
"""Name of a data set to its settings and its module in `adiabat.datasets`."""


def make(
    kind: str,
    source: PathLike,
    out: PathLike,
    *,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> "DatasetSummary":
    """Make a known data set from the files that its publisher offers.

    Args:
        kind: ``msmarco``, ``squad``, ``hotpotqa``, ``xnli`` or ``arxiv-negatives``.
        source: The publisher's file or folder.
        out: A new directory.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses a directory in
            use.
        settings: Settings of the kind, a TOML file or nested dicts; ``adiabat settings data squad`` lists
            them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``seed=1``.

    Returns:
        Files and counts; other functions take it in place of the directory.

    Raises:
        AdiabatError: If the source or a setting is unusable; then nothing is written.

    Example:
        >>> made = adiabat.make("squad", "train-v1.1.json", out="squad")
        >>> made.documents
        2
    """
    kind_of_settings, module = maker_of(kind)
    chosen = settings_of(kind_of_settings, settings, options, section=module, function="make")
    folder = place_of(out)
    asked = Asked.of("make", folder, exist_ok, settings=chosen, proof=RECORD, kind=kind, source=source)
    if asked.is_finished():
        return read_summary(folder)
    require_free(folder)
    maker = getattr(import_module(f"adiabat.datasets.{module}"), f"make_{module}")
    with asked.carried_out(progress) as call:
        summary: DatasetSummary = maker(Path(path_of(source, "source")), folder, chosen, watch=call.watch)
    return summary


def maker_of(kind: str) -> tuple[type[Section], str]:
    """Settings and module of a known data set."""
    if kind not in MAKERS:
        raise ConfigError(f"{positional('kind')} must be one of {', '.join(MAKERS)}, got {kind}; choose one")
    return MAKERS[kind]
