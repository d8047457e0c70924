"""`adiabat.space`: the geometry of an embedding space."""

from pathlib import Path

from adiabat.config.tasks import SpaceSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.evaluation.space_analysis import analyse_space
from adiabat.evaluation.space_maps import require_maps
from adiabat.evaluation.systems import System, baseline_system, open_baseline_stores, refuse_unused_stores, store_inputs
from adiabat.models.model_names import Model, load
from adiabat.results.space_result import SpaceResult
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.vector_store import Store, refuse_swapped


def space(
    model: Model,
    store: str | Path,
    queries: str | Path,
    *,
    baseline: Model | None = None,
    baseline_store: str | Path | None = None,
    out: str | Path | None = None,
    settings: SpaceSettings | None = None,
    command: str = "adiabat.space(...)",
    watch: Watch = SILENT,
) -> SpaceResult:
    """Describe the embedding space of a model: how its towers lie to each other, and how evenly each spreads (Moiseev et al. 2023).

    Args:
        model: Under test.
        store: Document vectors of its document tower; they are read, never made.
        queries: Queries with positives in the store.
        baseline: What the model is compared with.
        baseline_store: Where its own document tower, if it is another than the model's, stored the same documents in the same order.
        out: Directory for ``result.json``, ``report.html``, ``table.csv`` and ``table.md``; None writes nothing.
        settings: None takes the defaults.
        command: For the report.
        watch: Whom to tell.

    Returns:
        The result.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or SpaceSettings()
    if settings.space.map:
        require_maps()
    refuse_swapped(store, model, queries, order="MODEL STORE QUERIES")
    others = open_baseline_stores([] if baseline_store is None else [baseline_store], baseline=baseline is not None)
    opened = Store.open(store)
    examples = _addressed(queries, opened, settings)
    with claimed(None if out is None else Path(out), kind="space") as folder:
        after = System(load(model, settings=settings.encoder, device=settings.run.device), opened)
        opened.require_encoder(after.model.fingerprint("document"), who=after.model.name)
        before = None if baseline is None else _before(baseline, opened, others, settings)
        result = analyse_space(
            after,
            before,
            examples,
            settings=settings,
            title=f"{after.model.name} on {examples.name}",
            command=command,
            inputs=_inputs(queries, settings, opened, before),
            watch=watch,
        )
        if folder:
            if (folder / "result.json").exists():
                watch.note(f"the analysis that stood in {folder} is replaced")
            write_report(result, folder)
    return result


def _addressed(queries: str | Path, store: Store, settings: SpaceSettings) -> AddressedSet:
    found = read_examples(str(queries), split=settings.data.split, columns=settings.data.columns.given())
    if not isinstance(found, ExampleSet):
        raise DataError(f"QUERIES must be queries with positives, got the language grid {queries}; name examples or a BEIR folder")
    return address(found, store, missing=settings.data.missing, merge_equal=True)


def _before(baseline: Model, store: Store, others: list[Store], settings: SpaceSettings) -> System:
    """The baseline with documents of its own."""
    towers = load(baseline, settings=settings.encoder, device=settings.run.device)
    found = baseline_system(towers, towers.fingerprint("document"), store, others)
    refuse_unused_stores(others, [found.store])
    return found


def _inputs(queries: str | Path, settings: SpaceSettings, store: Store, before: System | None) -> dict[str, str]:
    """What was read."""
    split = {} if settings.data.split is None else {"split": settings.data.split}
    return {"data": str(queries), **split, **store_inputs(store, before)}
