"""`adiabat.space`: the geometry of an embedding space."""

from dataclasses import replace
from typing import Any

from adiabat.api.arguments import Data, PathLike, SettingsLike, data_of, optional_path, path_of, require_model, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.tasks import SpaceSettings
from adiabat.core.errors import DataError
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.evaluation.space_analysis import analyse_space, require_maps
from adiabat.evaluation.systems import System, baseline_system, open_baseline_stores, refuse_unused_stores, store_inputs
from adiabat.models.model_names import Model, load
from adiabat.results.space_result import SpaceResult
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.vector_store import Store, refuse_swapped


def space(
    model: Model,
    store: PathLike,
    queries: Data,
    *,
    baseline: Model | None = None,
    baseline_store: PathLike | None = None,
    out: PathLike | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> SpaceResult:
    """Measure an embedding space: how far the towers lie apart, and how evenly each spreads (Moiseev et al. 2023).

    Args:
        model: Model under test.
        store: Document vectors of its document tower.
        queries: Queries with positives in the store.
        baseline: Model to compare with.
        baseline_store: Document vectors of the baseline, if its document tower differs: the same documents in the same order.
        out: Directory for ``result.json``, ``report.html``, ``table.csv`` and ``table.md``; None writes nothing.
        settings: `SpaceSettings`, a TOML file or nested dicts; ``adiabat settings space`` lists them.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``map=True`` or ``resamples=1000``.

    Returns:
        The result.

    Raises:
        AdiabatError: If models, stores, queries, settings or directory are unusable.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> result = adiabat.space("demo", store, "test.jsonl", resamples=100)
        >>> result.to_frame().shape[0] == len(result.numbers)
        True
    """
    chosen = settings_of(SpaceSettings, settings, options, section="space", function="space")
    require_model(model, "model")
    if baseline is not None:
        require_model(baseline, "baseline")
    if chosen.space.map:
        require_maps()
    refuse_swapped(path_of(store, "store"), model, queries, order="MODEL STORE QUERIES")
    others = open_baseline_stores(
        [] if baseline_store is None else [path_of(baseline_store, "baseline_store")], baseline=baseline is not None
    )
    opened = Store.open(store)
    source = data_of(queries, "queries")
    examples = _addressed(source, opened, chosen)
    with called("space", progress) as call, claimed(optional_path(out, "out"), kind="space") as folder:
        after = System(load(model, settings=chosen.encoder, device=chosen.run.device), opened)
        opened.require_encoder(after.model.fingerprint("document"), who=after.model.name)
        before = None if baseline is None else _before(baseline, opened, others, chosen)
        result = analyse_space(
            after,
            before,
            examples,
            settings=chosen,
            title=f"{after.model.name} on {examples.name}",
            command=call.command,
            inputs=_inputs(source, chosen, opened, before),
            watch=call.watch,
        )
        if folder:
            if (folder / "result.json").exists():
                call.watch.note(f"the analysis that stood in {folder} is replaced")
            write_report(result, folder)
    return replace(result, folder=folder)


def _addressed(queries: str, store: Store, settings: SpaceSettings) -> AddressedSet:
    examples = read_examples(queries, split=settings.data.split, columns=settings.data.columns.given())
    if not isinstance(examples, ExampleSet):
        raise DataError(f"QUERIES must be queries with positives, got the language grid {queries}; name examples or a BEIR folder")
    return address(examples, store, missing=settings.data.missing, merge_equal=True)


def _before(baseline: Model, store: Store, others: list[Store], settings: SpaceSettings) -> System:
    """The baseline with documents of its own."""
    towers = load(baseline, settings=settings.encoder, device=settings.run.device)
    system = baseline_system(towers, towers.fingerprint("document"), store, others)
    refuse_unused_stores(others, [system.store])
    return system


def _inputs(queries: str, settings: SpaceSettings, store: Store, before: System | None) -> dict[str, str]:
    """What was read."""
    split = {} if settings.data.split is None else {"split": settings.data.split}
    return {"data": queries, **split, **store_inputs(store, before)}
