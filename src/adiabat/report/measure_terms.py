"""What a measure means, in one sentence for a reader who never met it."""

import re
from collections.abc import Iterable, Mapping

from adiabat.report.captions import sentences
from adiabat.report.pages import Terms

_NAME = re.compile(r"(?P<family>[^@(]+)(?:\((?P<parameters>.*)\))?(?:@(?P<cutoff>\d+(?:\.\d+)?))?")
"""A name of the ir-measures grammar, such as ``P(rel=2)@5``."""

_ALIASES = {
    "R": "Recall",
    "NDCG": "nDCG",
    "MRR": "RR",
    "MAP": "AP",
    "Precision": "P",
    "BPref": "Bpref",
    "RPrec": "Rprec",
}


DRIFTS: Mapping[str, str] = sentences("drifts")
"""Short descriptions of the measures of drift."""


def in_order(drifts: Iterable[str]) -> list[str]:
    """Measures of drift in the order of `DRIFTS`, then others by name: the keys of a record that is read are
    sorted.
    """
    known = [*DRIFTS]
    names = dict.fromkeys(drifts)
    return [name for name in known if name in names] + sorted(name for name in names if name not in DRIFTS)


def explained(measures: Iterable[str]) -> list[tuple[str, str]]:
    """Each measure once, with its sentence; names that only other programs know are left out."""
    sentences = {name: _sentence(name) for name in measures}
    return [(name, sentence) for name, sentence in sentences.items() if sentence]


def measures_section(measures: Iterable[str]) -> Terms | None:
    """A section with the meaning of each measure; None if none has one."""
    terms = explained(measures)
    return Terms(id="measures", title="What the measures mean", folded=False, terms=terms) if terms else None


def _sentence(name: str) -> str:
    """The sentence of a measure, with its cutoff and parameters; "" for an unknown one."""
    if name in DRIFTS:
        return f"{DRIFTS[name][0].upper()}{DRIFTS[name][1:]}."
    match = _NAME.fullmatch(name)
    if match is None:
        return ""
    family, cutoff = _ALIASES.get(match["family"], match["family"]), match["cutoff"] or ""
    # Of ``PND, negative 3`` the lead of its figure speaks.
    sentence = sentences("measures").get(family, "")
    if cutoff == "1":
        # There is nothing to order or to count.
        sentence = sentences("rank-1").get(family, sentence)
    return _with_notes(sentence.format(**_words(cutoff)), match["parameters"] or "")


def _words(cutoff: str) -> dict[str, str]:
    """The part of a ranking that a cutoff leaves, as the words that sentences need."""
    if not cutoff:
        return {"documents": "the documents found", "place": "among the documents found", "share": ""}
    documents = f"the first {cutoff} documents"
    return {
        "documents": documents,
        "place": "on rank 1" if cutoff == "1" else f"among {documents}",
        "share": f"{100 * float(cutoff):g} %",
    }


def _with_notes(sentence: str, parameters: str) -> str:
    """The sentence, and what the parameters of the measure change."""
    notes = []
    if grade := re.search(r"\brel=(\d+)", parameters):
        notes.append(f"relevant means grade {grade[1]} or more")
    if "judged_only=True" in parameters:
        notes.append("documents of unknown relevance are taken out first")
    if weights := re.search(r"\bgains=(\{.*?\})", parameters):
        notes.append(f"grades weigh {weights[1]}")
    return f"{'; '.join([sentence.removesuffix('.'), *notes])}." if sentence else ""
