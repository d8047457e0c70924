"""Texts written otherwise: how far answers move when nothing but the end of a text does is what drift is held against (mission A12).

Drift grows smoothly with the rate, and so does the damage: there is no rate at which it begins (LOG.md). So a limit is a choice, and
this one needs no labels: nobody minds what the mark at the end of a text does to the answers. `adiabat.measure.safety.limits_of`
has the formula.
"""

ENDINGS = ".?!。।۔؟！？…"
"""Marks that end a sentence, in the scripts of the packaged probes."""


def written_otherwise(text: str) -> str:
    """Another way to write a text: without the marks that end it, or with a full stop where it has none."""
    bare = text.rstrip().rstrip(ENDINGS).rstrip()
    return bare if bare and bare != text.rstrip() else f"{text.rstrip()}."
