"""The page of towers for tenants: the tower that each takes, its verdict, and the figures that chose it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from adiabat.core.text import NO_BREAK, counted, integer
from adiabat.report.captions import glossary
from adiabat.report.format import named, percent, signed
from adiabat.report.pages import Facts, Files, Group, Page, Terms, Tone, group, notes_section
from adiabat.report.tables import Cell, Contents, Table, csv_of, pair_cell, value_cell, verdict_cell
from adiabat.results.evaluation_result import Change
from adiabat.results.tenants_result import Tenant, TenantsResult, TowerName
from adiabat.results.training_record import CandidateFigure

TOWERS: tuple[TowerName, ...] = ("shared", "average", "own")
"""Towers that were tuned, in the order of their columns."""

IN_WORDS: dict[TowerName, str] = {"start": "untuned"}
"""Towers whose name is not the word for them."""


def page(result: TenantsResult) -> Page:
    """The page of the towers of all tenants."""
    reading = [notes_section("Notes", [("", result.notes)], everyone=""), Terms(terms=glossary("tenants"))]
    served = group("tenants", "served", Facts(facts=[("command", result.serve)]))
    return Page(
        record=result,
        name="tune",
        headline=headline(result),
        tone=_tone(result),
        reservations=reservations(result),
        about=[("model", result.model), ("tenants by", result.by), ("tenants", integer(len(result.tenants)))],
        sections=[
            group("tenants", "verdicts", _verdicts(result)),
            group("tenants", "choices", _choices(result)),
            _retention(result),
            served,
            Group(id="reading", title="Reading", sections=reading),
        ],
        facts=[("validation of the shared tower", f"{signed(result.shared, decimals=1)}{NO_BREAK}%")],
    )


def exports(result: TenantsResult) -> Files:
    """The table of the tenants beside the page, unrounded."""
    return {"table.csv": partial(csv_of, _figures(result))}


def _figures(result: TenantsResult) -> list[dict[str, object]]:
    """A row for each tenant."""
    rows: list[dict[str, object]] = []
    for tenant in result.tenants:
        row: dict[str, object] = {"tenant": tenant.name, "tower": tenant.chosen, "model": tenant.model}
        row |= {part: getattr(tenant, part) for part in ("train", "validation", "test")}
        validated = {tower.name: tower.figures[0] for tower in tenant.towers}
        for name in TOWERS:
            figure = validated.get(name)
            row[f"validation {name}"] = None if figure is None else figure.in_percent(figure.change)
        target = tenant.target
        row |= {"improvement": None, "verdict": "", "holds": tenant.holds}
        if target is not None:
            row |= {"improvement": target.improvement, "verdict": target.verdict or ""}
        rows.append(row)
    return rows


def terminal(result: TenantsResult) -> list[Table]:
    """The table of the tenants, with the headline below."""
    caption = [*reservations(result), headline(result)]
    return [replace(_verdicts(result), title=result.title, caption=caption)]


def notes(result: TenantsResult) -> list[str]:
    """Sentences that limit what the table proves."""
    return list(result.notes)


def headline(result: TenantsResult) -> str:
    """How many tenants got better, and how many worse, among all of them."""
    words = Counter(_word(tenant) for tenant in result.tenants)
    better = f"{integer(words['better'])} of {counted(len(result.tenants), 'tenant')} got better"
    others = []
    for word in ("worse", "not worse", "undecided"):
        if words[word]:
            others.append(f"{integer(words[word])} {word}")
    if words["untuned"]:
        others.append(f"{integer(words['untuned'])} keep the untuned model")
    if words["unmeasured"]:
        others.append(f"{integer(words['unmeasured'])} without test queries")
    return f"{'; '.join([better, *others])}."


def _word(tenant: Tenant) -> str:
    """The verdict on a tenant; a change that does not hold among all tenants is undecided."""
    if tenant.chosen == "start":
        return "untuned"
    if tenant.target is None:
        return "unmeasured"
    if tenant.target.verdict in ("better", "worse") and not tenant.holds:
        return "undecided"
    return tenant.target.verdict or "unmeasured"


def _tone(result: TenantsResult) -> Tone:
    """Good news if a tenant got better and none worse."""
    words = {_word(tenant) for tenant in result.tenants}
    if "worse" in words or _lost(result):
        return "bad"
    return "good" if "better" in words else "plain"


def reservations(result: TenantsResult) -> list[str]:
    """Which towers were taken, what was lost elsewhere, and what chose."""
    taken = Counter(tenant.chosen for tenant in result.tenants)
    towers = [f"{_named(name)} {integer(taken[name])}" for name in (*TOWERS, "start") if taken[name]]
    sentences = [f"Towers taken: {', '.join(towers)}."]
    for tower, name in _lost(result):
        sentences.append(f"The tower {tower} makes {named(name)} worse.")
    return sentences


def _named(tower: TowerName) -> str:
    """A tower in words."""
    return IN_WORDS.get(tower, tower)


def _lost(result: TenantsResult) -> list[tuple[str, str]]:
    """Towers with the retention sets that they make worse."""
    lost: dict[tuple[str, str], None] = {}
    for tenant in result.tenants:
        for name, change in tenant.retained.items():
            if change.verdict == "worse":
                lost[tenant.model, name] = None
    return list(lost)


def _verdicts(result: TenantsResult) -> Table:
    """A row for each tenant with its tower and its change on test queries."""
    rows = []
    for tenant in result.tenants:
        row: Contents = {
            "tenant": Cell(tenant.name, bold=True),
            "tower": Cell(_named(tenant.chosen), [tenant.why]),
            "test queries": integer(tenant.test),
        }
        if tenant.target is not None:
            row |= _changed(tenant.target)
            if not tenant.holds:
                row["verdict"] = Cell(f"({tenant.target.verdict})")
        rows.append(row)
    return Table.of(rows, {"tower": "text", "verdict": "text"}, sortable=True, look="stack")


def _changed(change: Change) -> Contents:
    """The cells of a change from the untuned model."""
    return {
        f"{change.measure} [95{NO_BREAK}%]": value_cell(change.after, change.after_interval),
        f"change [paired 95{NO_BREAK}%]": pair_cell(percent(change), change.improvement),
        "verdict": verdict_cell(change.verdict),
    }


def _choices(result: TenantsResult) -> Table:
    """A row for each tenant with the changes of all towers on its validation queries."""
    rows = []
    for tenant in result.tenants:
        row: Contents = {"tenant": tenant.name, "tuned on": integer(tenant.train)}
        row["validation queries"] = integer(tenant.validation)
        figures = {tower.name: tower.figures for tower in tenant.towers}
        for name in TOWERS:
            if name in figures:
                row[name] = _validated(figures[name], is_taken=name == tenant.chosen)
        rows.append(row)
    return Table.of(rows, sortable=True, look="stack")


def _validated(figures: Sequence[CandidateFigure], *, is_taken: bool) -> Cell:
    """The change of a tower on validation queries in percent; muted where it may lose elsewhere."""
    target, *retained = figures
    change = target.in_percent(target.change)
    risky = [figure.name for figure in retained if not figure.is_retained]
    below = [f"may lose on {', '.join(map(named, risky))}"] if risky else []
    text = f"{signed(change, decimals=1)}{NO_BREAK}%"
    return Cell(text, below, value=change, bold=is_taken, tone="bad" if risky else "")


def _retention(result: TenantsResult) -> Group | None:
    """The changes on retention sets of each tower that was taken; None without any."""
    rows: dict[tuple[str, str], Contents] = {}
    for tenant in result.tenants:
        tower = "shared" if tenant.chosen == "shared" else f"{tenant.chosen}: {tenant.name}"
        for name, change in tenant.retained.items():
            rows[tower, name] = {"tower": tower, "retention set": named(name), **_changed(change)}
    if not rows:
        return None
    table = Table.of(list(rows.values()), {"retention set": "text", "verdict": "text"}, sortable=True)
    return group("tenants", "retention", table)
