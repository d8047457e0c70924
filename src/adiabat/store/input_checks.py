"""Cheap checks of the inputs of a training, before torch is loaded: they exist, and have a known format."""

from collections.abc import Callable, Iterable

from adiabat.core.errors import AdiabatError, DataError, several
from adiabat.data.corpora import documents_file
from adiabat.data.examples import is_beir_examples
from adiabat.data.table_rows import table_form
from adiabat.store.vector_store import Store


def require_inputs(examples: Iterable[str], *, corpora: Iterable[str] = (), stores: Iterable[str] = ()) -> None:
    """Refuse inputs that are missing or of an unknown format, all at once."""
    checks: list[tuple[Callable[[str], object], Iterable[str]]] = [
        (Store.open, stores),
        (lambda source: is_beir_examples(source) or table_form(source), examples),
        (lambda source: table_form(documents_file(source)), corpora),
    ]
    faults: list[AdiabatError] = []
    for check, sources in checks:
        for source in dict.fromkeys(sources):
            try:
                check(source)
            except AdiabatError as fault:
                faults.append(fault)
    if len(faults) > 1:
        raise DataError(several(map(str, faults)))
    if faults:
        raise faults[0]
