"""Documents of which a static model knows no token: named before anything is encoded, or left out."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal

from adiabat.core.errors import DataError, Faults
from adiabat.core.text import cut
from adiabat.data.records import Document
from adiabat.models.encoder import Encoder
from adiabat.models.unknown_tokens import tokens_with_weight, wordless

AT_ONCE = 2048


SHOWN_CHARACTERS = 40
"""Of a document that a message names."""


def known_documents(
    encoder: Encoder,
    documents: Iterator[Document],
    *,
    blank: Literal["error", "drop"],
    source: str,
    note: Callable[[str], None],
    setting: str = "data.blank",
) -> Iterator[Document]:
    """Documents that get a vector with a direction."""
    with_weight = tokens_with_weight(encoder)
    if with_weight is None:
        yield from documents
        return
    unknown, count = Faults(shown=3), 0
    while block := list(islice(documents, AT_ONCE)):
        count += len(block)
        without = wordless(encoder, [document.text for document in block], side="document", with_weight=with_weight)
        for document, left_out in zip(block, without, strict=True):
            if left_out:
                unknown.add(f'"{document.doc_id}" ({cut(document.text, limit=SHOWN_CHARACTERS)!r})')
            else:
                yield document
    if not unknown.count:
        return
    named = unknown.told(f"of {count:,} documents")
    if blank == "error":
        raise DataError(
            f"{source}: a document must hold a token that the static model knows, got none in {named}; "
            f"set {setting} = drop, which leaves such documents out of a corpus, or use another model"
        )
    note(f"{source}: documents without a token that the static model knows are left out: {named}")
