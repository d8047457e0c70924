"""What a measure means, in one sentence for a reader who never met it."""

import re
from collections.abc import Iterable, Mapping

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

_SENTENCES: Mapping[str, str] = {
    "nDCG": "How well {documents} are ordered: 1 if the most relevant ones "
    "come first, 0 if none is relevant.",
    "Recall": "The share of a query's relevant documents that stand {place}.",
    "RR": "1 divided by the rank of the first relevant document: 1 on rank 1, "
    "0.5 on rank 2, 0 if none stands {place}.",
    "P": "The share of {documents} that are relevant.",
    "AP": "The share of relevant documents up to the rank of each relevant one {place}, "
    "averaged over all of them: 1 if they come first.",
    "Success": "The share of queries with a relevant document {place}.",
    "Judged": "The share of {documents} whose relevance is known.",
    "Rprec": "The share of relevant documents among as many first documents as the query has relevant ones.",
    "IPrec": "The highest share of relevant documents in a beginning of the ranking "
    "that holds {share} of all relevant ones.",
    "Bpref": "The share of relevant documents ranked above those judged not relevant; "
    "documents without a judgement do not count.",
    "infAP": "AP estimated from a sample of judgements.",
    "SetP": "The share of the documents found that are relevant.",
    "SetR": "The share of a query's relevant documents that were found.",
    "SetF": "The harmonic mean of the shares SetP and SetR: high only if both are.",
    "SetAP": "The product of the shares SetP and SetR: high only if both are.",
    "SetRelP": "SetP as a share of the highest possible one.",
    "NumQ": "The number of queries.",
    "NumRet": "The number of documents found for a query.",
    "NumRel": "The number of a query's relevant documents.",
    "NumRelRet": "The number of a query's relevant documents that were found.",
    "PND": "The share of pairs of a relevant and another document in which the relevant "
    "one is not strictly closer to the query: 0 is "
    "perfect, 0.5 is chance.",
    "PND pooled": "PND over the pairs of all queries together, so that queries with many pairs weigh more.",
    "PND retrieval": "PND where each sentence ranks those of all other pairs.",
    "accuracy": "The share of texts with the right answer.",
    "accuracy a to b": "The share of sentences of side a whose nearest sentence of "
    "side b is their translation.",
    "accuracy b to a": "The share of sentences of side b whose nearest sentence of "
    "side a is their translation.",
    "balanced accuracy": "The accuracy of each label, averaged over labels, so that rare "
    "labels count as much as frequent ones.",
    "F1": "The harmonic mean of the shares of right answers among those given and among those that exist.",
    "Spearman": "How well the order of similarities agrees with the order that people "
    "gave: 1 is the same order, 0 is none.",
    "average precision": "How well pairs that belong together stand above the others, ordered "
    "by similarity: 1 if all of them do.",
    "V-measure": "How well clusters of texts agree with their labels: 1 if each cluster "
    "is one label and each label one cluster.",
}
"""A sentence for each family of measures; of ``PND, negative 3`` the lead of its figure speaks."""

DRIFTS: Mapping[str, str] = {
    "overlap loss": "1 minus the rank-biased overlap of the documents found: 0 for equal "
    "lists, 1 for lists that share no document",
    "margins": "how much the top document's leads changed, in units of the "
    "untuned tower's root mean square lead",
    "turn": "angle between a probe's untuned and current vectors, in radians",
    "rotation share": "share of the movement of all probes that is one rotation of the space",
}
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


_ON_RANK_1: Mapping[str, str] = {
    "nDCG": "How relevant the first document is: 1 if no other is more relevant, 0 if it is not relevant.",
    **dict.fromkeys(("P", "Success", "RR"), "The share of queries whose first document is relevant."),
    "Judged": "The share of queries whose first document has a known relevance.",
}
"""Sentences for a cutoff of 1, where there is nothing to order or to count."""


def measures_section(measures: Iterable[str]) -> Terms | None:
    """A section with the meaning of each measure; None if none has one."""
    terms = explained(measures)
    return Terms(id="measures", title="What the measures mean", folded=False, terms=terms) if terms else None


def _sentence(name: str) -> str:
    if name in DRIFTS:
        return f"{DRIFTS[name][0].upper()}{DRIFTS[name][1:]}."
    match = _NAME.fullmatch(name)
    if match is None:
        return ""
    family, cutoff = _ALIASES.get(match["family"], match["family"]), match["cutoff"] or ""
    sentence = _SENTENCES.get(family, "")
    if cutoff == "1":
        sentence = _ON_RANK_1.get(family, sentence)
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
