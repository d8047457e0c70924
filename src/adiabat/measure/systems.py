"""What is measured: towers, and the stored documents that their queries are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

from adiabat.errors import StoreError
from adiabat.model.fingerprint import Fingerprint
from adiabat.model.towers import DualEncoder
from adiabat.store.embeddings import Store


@dataclass(frozen=True, slots=True)
class System:
    """A model with the vectors of its document tower.

    Attributes:
        model: Its query tower is asked.
        store: Its documents.
    """

    model: DualEncoder
    store: Store


def baseline_of(baseline: DualEncoder, fingerprint: Fingerprint, store: Store, others: Sequence[Store]) -> System:
    """The baseline with documents of its own: those of the model under test where one tower made both, else the same in another store.

    Args:
        baseline: What a model is compared with.
        fingerprint: Of its document tower: taking it reads all weights.
        store: Documents of the model under test.
        others: Stores that the baseline's document tower may have made.

    Returns:
        The baseline and its store, in which a row is the same document as in `store`.

    Raises:
        StoreError: If no store holds these documents as the baseline's tower embeds them.
    """
    differences = store.differences(fingerprint)
    if not differences:
        return System(baseline, store)
    fitting = [other for other in others if not other.differences(fingerprint)]
    for other in fitting:
        if other.same_documents(store):
            return System(baseline, other)
    wanted = f"the documents of {store.path} must be stored by the baseline {baseline.name} too, whose document tower is another"
    if not others:
        raise StoreError(
            f"{wanted} ({'; '.join(differences)}), got no --baseline-store; "
            f"embed the same corpus by adiabat embed {baseline.name} CORPUS --out DIR and add --baseline-store DIR"
        )
    faults = [_misfit(other, store, other in fitting, baseline) for other in others]
    raise StoreError(f"{wanted}, got {'; '.join(faults)}; embed the same corpus by adiabat embed {baseline.name} CORPUS --out DIR")


def _misfit(other: Store, store: Store, fits: bool, baseline: DualEncoder) -> str:
    if not fits:
        return f"{other.path} of another encoder than {baseline.name}"
    if other.count != store.count:
        return f"{other.path} with {other.count:,} documents, not {store.count:,}"
    return f"{other.path} with other documents, or in another order"
