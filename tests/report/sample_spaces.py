"""Small analyses of spaces for the tests of the report room."""

from adiabat.results import space_result as spaces
from adiabat.results.space_result import Distribution, SpaceNumber, SpaceResult, Whose
from tests.report.sample_results import CREATED

QUANTILES = [0.1, 0.15, 0.3, 0.5, 0.7, 0.85, 0.9]


def make_number(
    name: str, of: Whose, after: float | None, before: float | None = None, half_width: float | None = 0.01
) -> SpaceNumber:
    """Intervals reach `half_width` to either side; None has none."""
    difference = None if after is None or before is None else after - before

    def around(value: float | None) -> tuple[float, float] | None:
        return None if value is None or half_width is None else (value - half_width, value + half_width)

    values = (after, around(after), before, around(before), difference, around(difference))
    return SpaceNumber(name, of, f"formula of {name} | x |", "a source", *values)


def make_histogram(*counts: int, left_out: int = 0, below: int = 0, above: int = 0) -> spaces.Histogram:
    return spaces.Histogram(list(counts), below, above, QUANTILES if sum(counts) else [], left_out)


def make_distribution(name: str, *, compared: bool) -> Distribution:
    ratio = name == "ratio"
    after = make_histogram(2, 5, 3, left_out=10 if ratio else 0, above=4 if ratio else 0)
    return Distribution(name, [0.0, 0.5, 1.0, 1.5], after, make_histogram(4, 4, 2) if compared else None)


def make_panel(shift: float) -> spaces.MapPanel:
    return spaces.MapPanel([(0.0 + shift, 1.0), (2.0, 3.5)], [(0.5, 1.5 + shift), (2.5, 3.0)])


def make_space(
    *, separation: tuple[float, float | None] = (0.9, 0.99), drawn_map: bool = True
) -> SpaceResult:
    """An analysis beside a baseline, unless the second of `separation` is None."""
    compared = separation[1] is not None

    def pick(value: float) -> float | None:
        return value if compared else None

    read = {"queries": 10_000, "looked_at": 2_000, "distinct": 1_500, "documents": 50_000, "sampled": 2_000}
    after, before = make_panel(0.0), make_panel(1.0) if compared else None
    return SpaceResult(
        title="ade on squad",
        command="adiabat space ade store squad --out runs/space",
        seconds=12.0,
        model="ade",
        baseline="demo" if compared else None,
        data="squad",
        pairs=10_000,
        resamples=2_000,
        numbers=[
            make_number("cosine to positive", "both", 0.61, pick(0.605)),
            make_number("ratio, median", "both", 0.95, pick(0.7)),
            make_number("tower separation, AUC", "both", *separation),
            make_number("distance of tower means", "both", 0.2, pick(0.3), None),
            make_number("uniformity", "queries", -3.5, pick(-3.5)),
            make_number("effective rank", "queries", None, pick(150.25), None),
            make_number("effective rank", "documents", 120.75, pick(150.25), None),
        ],
        distributions=[
            make_distribution(name, compared=compared) for name in ("nearest", "positive", "ratio")
        ],
        map=spaces.SpaceMap(30.0, after, before) if drawn_map else None,
        notes=["a note"],
        settings={"space": {"folds": 5}},
        inputs={"data": "squad", "store_sha256": "ab12"},
        **read,
        **CREATED,
    )
