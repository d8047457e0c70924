import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest

from adiabat.report.evaluation_page import EXAMPLES_SHOWN, render_page
from adiabat.results.evaluation_result import Hit
from tests.report.sample_results import full_result, make_change, make_dataset, make_example, make_grid, make_result, make_tuning

VOID = {"meta", "link", "br", "img", "input", "hr"}
NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)>{{ 7 * 7 }}</title></style>'


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, section ids, text by id of the section, and whether all tags close."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.pieces).replace("\xa0", " ").split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.pieces.append(data)

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    def ids(self) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get("id")) is not None]

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()]


def page(result) -> Page:
    return Page(render_page(result))


@cache
def full_html() -> str:
    """Drawn once for all tests that only read it."""
    return render_page(full_result())


def test_a_full_result_has_every_part():
    shown = Page(full_html())
    assert {"verdict", "datasets", "all-measures", "how-to-read", "examples", "training", "layers", "made", "settings", "versions"} <= set(
        shown.ids()
    )
    assert len(shown.with_class("languages")) == 1
    # two forest plots (wide and narrow), one heat map, two curves, the layer bars
    assert len(shown.tags("svg")) == 6
    assert "The target cs got better: nDCG@10 0.612 → 0.661, +8.0 % [+4.7, +11.3]" in shown.text


def test_ids_are_unique_over_the_whole_page():
    result = full_result()
    ids = page(replace(result, datasets=[*result.datasets, make_grid(["en", "de"], name="second")])).ids()
    assert len(ids) == len(set(ids))


def test_the_page_loads_nothing_and_runs_nothing():
    html = full_html()
    shown = Page(html)
    assert {tag for tag, _ in shown.elements} & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "image",
        "audio",
        "video",
        "form",
        "base",
    } == set()
    assert [link["href"] for link in shown.tags("link")] == ["data:,"]
    for _, attributes in shown.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert "@import" not in html
    assert html.replace("http://www.w3.org/2000/svg", "").count("://") == 0
    policy = [meta["content"] for meta in shown.tags("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_markup_in_any_text_is_inert():
    dataset = replace(make_dataset(NASTY, "target", 0.5, 0.6), notes=[NASTY])
    change = replace(dataset.changes[0], measure=NASTY)
    hit = Hit(NASTY, NASTY, 0.5, True)
    example = replace(make_example(NASTY), dataset=NASTY, before=[hit], after=[hit])
    grid = make_grid([NASTY, "de"], name=NASTY)
    tuning = replace(make_tuning(), settings={NASTY: {NASTY: NASTY}}, trained_on=NASTY, stop_reason=NASTY)
    tuning = replace(tuning, layers=[replace(layer, name=NASTY) for layer in tuning.layers])
    nasty = replace(
        make_result(replace(dataset, changes=[change], main=NASTY), grid, training=tuning, examples=[example], baseline=NASTY, title=NASTY),
        **{"command": NASTY, "created": NASTY, "model": NASTY, "versions": {NASTY: NASTY}},
    )
    shown = page(nasty)
    assert {tag for tag, _ in shown.elements} & {"script", "img"} == set()
    assert shown.text.count('<script>alert("x")</script>') >= 15
    assert len(shown.tags("title")) == 1
    assert "{{ 7 * 7 }}" in shown.text


def test_the_same_result_gives_the_same_bytes():
    assert render_page(full_result()) == full_html()


def test_a_result_of_tuning_alone_leaves_out_what_was_not_measured():
    shown = page(make_result(training=make_tuning(), baseline=None))
    assert not {"datasets", "all-measures", "how-to-read", "examples"} & set(shown.ids())
    assert {"training", "layers", "made", "settings"} <= set(shown.ids())
    assert "compared with" not in shown.text
    assert "Tuning ran 3 epochs (300 steps) and kept epoch 2" in shown.text


def test_an_evaluation_without_a_baseline_shows_values_only():
    shown = page(make_result(make_dataset("cs", "target", None, 0.652), make_grid(["en", "de"], compared=False), baseline=None))
    assert "What was measured" in shown.text
    assert "0.6520" in shown.text
    assert "[0.6420, 0.6620]" in shown.text
    assert shown.with_class("badge") == []
    assert "bootstrap, the verdict" not in shown.text
    assert "PND (lower is better)" in shown.text
    # the heat map alone: no forest plot, no curves
    assert len(shown.tags("svg")) == 1
    assert not {"training", "layers", "settings", "examples"} & set(shown.ids())


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_each_data_set_has_a_row_and_a_badge(kept):
    datasets = [make_dataset(f"kept {number}", "retain", 0.5, 0.45) for number in range(kept)]
    shown = page(make_result(make_dataset("cs", "target", 0.5, 0.6), *datasets))
    # once in the main table, once among all measures
    assert len([one for one in shown.with_class("badge") if "better" in (one["class"] or "").split()]) == 2
    assert len([one for one in shown.with_class("badge") if "worse" in (one["class"] or "").split()]) == 2 * kept
    assert "Languages" not in shown.text


def test_z_stands_among_all_measures_and_not_beside_the_main_one():
    dataset = make_dataset("cs", "target", 0.5, 0.4, measure="PND")
    shown = page(make_result(replace(dataset, changes=[*dataset.changes, make_change(0.5, 0.4, measure="PND pooled", z=-3.214)])))
    assert not [cell for cell in shown.tags("td") if cell.get("data-label") == "z"]
    assert shown.text.count("−3.21") == 1
    assert "It is of “PND pooled” alone" in shown.text


def test_the_forest_is_captioned_by_verdicts_and_the_guard_of_few_queries_explained():
    text = Page(full_html()).text
    assert "Filled: the verdict is better or worse. Open: no evidence, though the interval may exclude zero where fewer than six" in text
    assert "Where fewer than six queries changed, p cannot fall below 0.05 whatever the interval" in text


@pytest.mark.parametrize("side", [1, 2, 15])
def test_grids_of_any_size_state_both_counts(side):
    shown = page(make_result(make_grid([f"l{number}" for number in range(side)])))
    worse = int(side > 1)
    assert (
        f"paired: 1 better, {worse} worse, {side**2 - 1 - worse} no evidence, of {side**2} z-test: 7 better, {worse} worse"
        in shown.text.replace(" , ", ", ")
    )


def test_examples_say_in_words_what_moved_and_what_is_relevant():
    shown = page(make_result(make_dataset("cs", "target", 0.5, 0.6), examples=[make_example()]))
    assert "first relevant: rank 3 → rank 1" in shown.text
    for words in ("↑ from 3", "↓ from 1", "+ moved in", "× moved out", "→ now 2", "→ now 1"):
        assert shown.text.count(words) == 1, words
    assert shown.text.count("✓ relevant") == 2
    assert len(shown.with_class("relevant")) == 2


def test_a_relevant_hit_far_down_is_shown_and_the_irrelevant_ones_before_it_are_not():
    hits = [Hit(f"d{rank}", "", 1.0 / rank, rank == 9) for rank in range(1, 11)]
    shown = page(make_result(examples=[replace(make_example(), before=hits, after=hits[::-1])]))
    assert "first relevant: rank 9 → rank 2" in shown.text
    assert "d9" in shown.text
    # d6 is sixth before and fifth after; d7 is seventh and fourth
    assert shown.text.count(" d6") == 1
    assert shown.text.count(" d5") == 1


def test_only_the_first_ten_examples_are_shown_and_the_rest_counted():
    shown = Page(full_html())
    assert len(shown.with_class("example")) == EXAMPLES_SHOWN
    assert "2 more are in result.json" in shown.text


def test_huge_texts_are_cut_with_an_ellipsis_and_their_length_stated():
    huge = "word " * 20_000
    example = replace(make_example(huge), before=[Hit(huge, huge, 0.5, False)])
    html = render_page(make_result(make_dataset(huge, "target", 0.5, 0.6), examples=[example], title=huge))
    assert len(html) < 120_000
    shown = Page(html)
    assert "cut from 100,000 characters" in shown.text
    assert "(100,000 characters)" in shown.text
    assert "word word…" in shown.text


def test_texts_choose_their_own_direction():
    shown = page(make_result(examples=[make_example("ما هي أسباب تغير المناخ؟")]))
    assert [one.get("dir") for one in shown.with_class("query")] == ["auto"]
    assert "ما هي أسباب تغير المناخ؟" in shown.text


def test_characters_that_no_page_can_hold_are_replaced():
    html = render_page(make_result(make_dataset("a\x00b\ud800", "target", 0.5, 0.6), examples=[make_example("\x07 \udc00")]))
    html.encode("utf-8")
    assert not {"\x00", "\x07"} & set(html)


def test_layers_are_ranked_by_either_figure_and_zero_tensors_counted():
    shown = page(make_result(training=make_tuning()))
    assert "1 tensor had only zeros before" in shown.text
    by_relative, by_largest = shown.text.split("By relative change")[1].split("By change of the largest weight")
    assert by_relative.index("layer.19.weight") < by_relative.index("layer.18.weight")
    assert by_largest.index("layer.0.weight") < by_largest.index("layer.1.weight")
    assert by_relative.count("encoder.layer") == by_largest.count("encoder.layer") == 15


def test_settings_stand_under_dotted_keys_beside_seed_versions_and_command():
    text = Page(full_html()).text
    for words in (
        "schedule.kind constant",
        "learning_rate 5e-08",
        'freeze ["embeddings"]',
        "seed 7",
        "adiabat 0.1.0",
        "adiabat evaluate job store",
    ):
        assert words in text, words


def test_inputs_and_settings_of_an_evaluation_stand_apart_from_those_of_the_training():
    inputs = {"target": {"data": "cs.jsonl", "store": "stores/cs", "store_sha256": "ab12"}}
    result = replace(full_result(), settings={"measure": {"depth": 77}}, inputs=inputs)
    shown = page(result)
    assert {"inputs", "settings", "training-settings"} <= set(shown.ids())
    for words in ("target.data cs.jsonl", "target.store_sha256 ab12", "Settings measure.depth 77", "Settings of the training freeze"):
        assert words in shown.text, words
    tuned = make_result(training=make_tuning(), baseline=None)
    assert "training-settings" not in page(replace(tuned, settings=tuned.training.settings)).ids()


def test_a_note_on_several_data_sets_stands_once_behind_their_names():
    sets = [
        replace(make_dataset(name, "retain", 0.5, 0.6), notes=notes) for name, notes in (("a", ["x", "y"]), ("b", ["y", "x"]), ("c", ["y"]))
    ]
    (card,) = render_page(make_result(*sets)).split('<div class="card small notes">')[1:]
    lines = re.findall(r'<span class="muted">(.*?):</span> (\w+)</p>', card)
    assert lines == [("a, b", "x"), ("all data sets", "y")]


def test_notes_of_the_tuning_stand_in_its_section():
    tuning = replace(make_tuning(), notes=("5 of 5 validation queries are <b>also</b> trained on",))
    assert "note 5 of 5 validation queries are <b>also</b> trained on" in page(make_result(training=tuning)).text
