"""The margin of non-inferiority: the largest loss that does not matter."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from adiabat.core.errors import ConfigError

FEWEST_UNITS = 10
"""With fewer units, no loss is excluded."""

_FORM = re.compile(
    r"\s*(?P<number>[0-9.]+(?:e-?[0-9]+)?)\s*(?P<unit>%|[A-Za-z][\w@()=.,' -]*?)?\s*", re.IGNORECASE
)

_MEASURES = (
    "PND",
    "nDCG",
    "RR",
    "AP",
    "P",
    "R",
    "Rprec",
    "Success",
    "Spearman",
    "average precision",
    "accuracy",
    "F1",
    "V-measure",
)
"""Measures that a message offers."""

_ACCEPTED = (
    *(
        "PND pooled",
        "PND retrieval",
        "balanced accuracy",
        "accuracy a to b",
        "accuracy b to a",
        "MAP",
        "MRR",
        "NDCG",
        "Precision",
        "Recall",
        "RPrec",
    ),
    *(
        "AP_IA",
        "MAP_IA",
        "P_IA",
        "ERR_IA",
        "nERR_IA",
        "alpha_DCG",
        "alpha_nDCG",
        "NRBP",
        "nNRBP",
        "StRecall",
        "BPM",
        "Bpref",
        "BPref",
    ),
    *(
        "Compat",
        "ERR",
        "NERR8",
        "NERR9",
        "NERR10",
        "NERR11",
        "INSQ",
        "INST",
        "IPrec",
        "Judged",
        "NumQ",
        "NumRel",
        "NumRelRet",
        "NumRet",
    ),
    *("RBP", "SDCG", "SetAP", "SetF", "SetP", "SetR", "SetRelP", "infAP"),
    *("cosine_spearman", "max_ap", "v_measure", "ndcg_at_10", "map_at_1000", "main_score", "lrap", "hamming"),
)
"""Further measures of tasks, of ir-measures, and main scores of mteb where it keeps no scores of single
texts."""

_SAME = {
    **{"mrr": "rr", "map": "ap", "map_ia": "ap_ia", "recall": "r", "precision": "p"},
    **{"cosine_spearman": "spearman", "v_measure": "v-measure"},
}
"""Second names of measures, of ir-measures and of mteb."""

_NAMES = frozenset(name.casefold() for name in (*_MEASURES, *_ACCEPTED))


@dataclass(frozen=True, slots=True)
class Margin:
    """The largest loss that does not matter, of any measure.

    Attributes:
        value: Share of the baseline's value, in (0, 1); with `unit` a difference of that measure.
        unit: Name of a measure with or without its cutoff, such as ``nDCG``; "" for a share.
    """

    FORM: ClassVar[str] = (
        'a share such as 0.01 or "1 %", or a difference with its measure such as "0.01 nDCG"'
    )

    value: float = 0.01
    unit: str = ""

    @classmethod
    def parse(cls, given: float | str) -> "Margin":
        """Read a share (``0.01``, ``"1 %"``), or a difference with the measure it is of (``"0.01 nDCG"``).

        Raises:
            ValueError: If it is neither, the number is not above 0 and below 1, or no measure has that name.
        """
        if wanted := cls.wanted(given):
            raise ValueError(f"must be {wanted}, got {given!r}")
        return cls(*_read(given))

    @classmethod
    def wanted(cls, given: float | str) -> str:
        """What to give instead; "" for a margin."""
        value, unit = _read(given)
        if not 0 < value < 1:
            return cls.FORM
        if unit and _name(unit) not in _NAMES:
            return f"a share, or a difference of {', '.join(_MEASURES)} or another measure of ir-measures"
        return ""

    @property
    def share(self) -> float:
        """The share of the baseline's value; 0 for a difference."""
        return 0.0 if self.unit else self.value

    def of(self, measure: str) -> "Margin":
        """The margin for a measure: itself if it is a share or names the measure, else the default share."""
        unit, measured = _parts(self.unit), _parts(measure)
        return self if not self.unit or unit in (measured, (measured[0], "")) else DEFAULT_MARGIN

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}" if self.unit else f"{100 * self.value:g} %"


def _read(given: float | str) -> tuple[float, str]:
    """Number and unit; 0 where there is no number."""
    if isinstance(given, int):
        # No share, and perhaps too large for a float.
        return 0.0, ""
    form = _FORM.fullmatch(given if isinstance(given, str) else repr(float(given)))
    try:
        value = float(form["number"]) if form else 0.0
    except ValueError:
        value = 0.0
    unit = (form["unit"] or "").strip() if form else ""
    return (value / 100, "") if unit == "%" else (value, unit)


def _name(unit: str) -> str:
    """The name of a measure without cutoff and parameters."""
    return re.split(r"[@(]", unit, maxsplit=1)[0].strip().casefold()


DEFAULT_MARGIN = Margin()
"""One percent of the baseline."""


def _parts(name: str) -> tuple[str, str]:
    """Which measure a name is of, whatever it is called, and its cutoff and parameters."""
    folded = name.casefold().replace("_at_", "@")
    family = re.split(r"[@(, ]", folded, maxsplit=1)[0]
    return _SAME.get(family, family), folded[len(family) :]


def require_margin(given: float | str, measures: Iterable[str]) -> None:
    """Refuse a margin of a measure that is not measured: it would apply to nothing."""
    margin, known = Margin.parse(given), dict.fromkeys(measures)
    if margin.unit and not any(margin.of(measure).unit for measure in known):
        raise ConfigError(
            f"measure.margin must be a share, or a difference of {', '.join(known)}, which "
            f"are measured, got {margin}; write one of them, "
            "or its name without a cutoff"
        )
