"""Whether imported vectors are those of an encoder: a sample of documents is encoded again and compared."""

import math
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from adiabat.config.shared import NEEDED_COSINE
from adiabat.core.errors import StoreError
from adiabat.core.wording import option
from adiabat.data.records import Fingerprint
from adiabat.store.build import DocumentEncoder
from adiabat.store.corpus_files import StringColumn
from adiabat.store.manifest import ID_FILE, TEXT_FILE, VECTOR_FILE

QUANTISED_COSINE = 0.9
"""Lowest cosine that an engine of lower precision usually leaves. The weights of all-MiniLM-L6-v2 rounded to
5 bits, in groups of 32, leave 0.98 to 0.99, those rounded to 4 bits 0.92 to 0.97 (120 paragraphs of the
guide)."""
EVEN = 10
"""Maximum deviation of an engine's vectors, as a multiple of the median one. Those above deviate by 1 to 2 %
and by 3 to 8 %."""
LENGTH_TOLERANCE = 0.01
"""Maximum relative difference in length between an imported vector and the encoder's: rounding passes,
missing normalisation does not."""


def agreed_fingerprint(
    encoder: DocumentEncoder, folder: Path, sample: int, seed: int, *, min_cosine: float
) -> Fingerprint:
    """The encoder's fingerprint, if its vectors for a sample of documents agree with the imported ones in a
    folder.

    With ``v`` an imported vector and ``w`` the encoder's own for the same text: the cosine
    ``v w / (|v| |w|)`` must reach `min_cosine`, and ``| |v| / |w| - 1 |`` must not exceed `LENGTH_TOLERANCE`.
    The worst document decides both.
    """
    ids, texts = StringColumn(folder / ID_FILE), StringColumn(folder / TEXT_FILE)
    # Sorted, because the file is read through a memory map.
    rows = np.sort(np.random.default_rng(seed).choice(len(ids), size=min(sample, len(ids)), replace=False))
    stored = np.load(folder / VECTOR_FILE, mmap_mode="r")[rows].astype(np.float64)
    encoded = encoder.encode(texts.take(rows), side="document").astype(np.float64)
    names, fingerprint = ids.take(rows), encoder.fingerprint("document")
    imported, expected = np.linalg.norm(stored, axis=1), np.linalg.norm(encoded, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.einsum("ne,ne->n", stored, encoded) / (imported * expected)
    worst = int(np.argmin(cosines))
    # "Not at least" also catches NaN.
    if not cosines[worst] >= min_cosine:
        raise StoreError(
            "imported vectors must agree with the encoder's at cosine >= "
            f"{min_cosine:g}, got {cosines[worst]:.6f} for "
            f'"{names[worst]}" (the worst of {len(names)}); {_likely_cause(cosines, min_cosine)}'
        )
    # Lengths affect distances and dot products, and documents appended later would have the encoder's
    # lengths.
    deviations = np.abs(imported / expected - 1)
    longest = int(np.argmax(deviations))
    if deviations[longest] > LENGTH_TOLERANCE:
        advice = "true, if they have length 1"
        if fingerprint.normalize:
            advice = "false, if the model gives such lengths"
        raise StoreError(
            "imported vectors must have the length of the encoder's within "
            f"{LENGTH_TOLERANCE:.0%}, got {imported[longest]:.4g} instead of "
            f'{expected[longest]:.4g} for "{names[longest]}" (the worst of {len(names)}); '
            f"scale them, or set encoder.normalize={advice}"
        )
    if cosines[worst] < NEEDED_COSINE:
        warnings.warn(
            f"imported vectors have a cosine of {cosines[worst]:.4f} or more with the encoder's, as from an "
            "engine of lower precision; queries and documents encoded from here on are the encoder's own",
            stacklevel=4,
        )
    return fingerprint


def _likely_cause(cosines: Float64[np.ndarray, " n"], min_cosine: float) -> str:
    """Why vectors differ, the commonest cause first, and what to do."""
    other_model = (
        "choose the encoder and document_prompt that made them, and check "
        "that ids are in the order of the vectors"
    )
    titled = (
        'a document with a title is embedded as title + " " + text: for vectors of texts '
        "alone, leave the title column out of the corpus"
    )
    agreeing = int(np.count_nonzero(cosines >= min_cosine))
    deviations = 1 - cosines
    # An engine of lower precision moves all vectors alike; wrong texts or ids move their own.
    is_uneven = not deviations.max() <= EVEN * np.median(deviations)
    if 2 * agreeing > len(cosines) and is_uneven:
        return (
            f"{agreeing} of {len(cosines)} agree, so that texts or ids of the "
            f"others differ: check those; {titled}"
        )
    if not cosines.min() >= QUANTISED_COSINE:
        return f"{other_model}; {titled}"
    # Rounded down, because the vectors outside of the sample may differ more.
    accepted = option("min_cosine", math.floor(100 * cosines.min()) / 100)
    return (
        "an engine of lower precision (int8 or 4-bit weights, quantised vectors) gives such vectors of the "
        f"same model: take them with {accepted}; if it was not one, {other_model}; {titled}"
    )
