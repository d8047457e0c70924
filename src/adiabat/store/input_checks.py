"""What can be seen of the inputs of a training without reading them, and before torch is loaded: that they are there."""

from collections.abc import Callable, Iterable

from adiabat.core.errors import AdiabatError, DataError, several
from adiabat.data.corpora import documents_file
from adiabat.data.examples import is_beir_examples
from adiabat.data.table_rows import table_form
from adiabat.store.vector_store import Store


def require_inputs(examples: Iterable[str], *, corpora: Iterable[str] = (), stores: Iterable[str] = ()) -> None:
    """Refuse inputs that are missing, or of no form that is known."""
    faults: list[AdiabatError] = []
    for look, sources in ((Store.open, stores), (_look_at_examples, examples), (_look_at_corpus, corpora)):
        faults += [fault for source in dict.fromkeys(sources) for fault in _faults(look, source)]
    if len(faults) > 1:
        raise DataError(several(map(str, faults)))
    if faults:
        raise faults[0]


def _faults(look: Callable[[str], object], source: str) -> list[AdiabatError]:
    try:
        look(source)
    except AdiabatError as fault:
        return [fault]
    return []


def _look_at_examples(source: str) -> None:
    if not is_beir_examples(source):
        table_form(source)


def _look_at_corpus(source: str) -> None:
    table_form(documents_file(source))
