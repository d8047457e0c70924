"""From settings to towers: what is trained, what is frozen, what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft.tuners.tuners_utils import BaseTunerLayer

from adiabat.config.shared import EncoderSection
from adiabat.core.errors import AdiabatError, ConfigError, ModelError
from adiabat.data.records import SIDES
from adiabat.dual_encoder.tower_setup import Built, build, merged, named_weights
from adiabat.dual_encoder.train_record import layers_changed
from adiabat.models.loading import load
from adiabat.models.towers import DualEncoder
from tests.dual_encoder.problem import WIDTH, from_memory, model, settings_of
from tests.jobs import weights_of
from tests.models.static_models import write_static
from tests.tiny import tiny_dual

TEXTS = ["one text", "another one", "a third, which is longer"]


def built(
    *, kind: str = "shared", train: dict[str, Any] | None = None, load: Any = from_memory, **tables: Any
) -> Built:
    towers = {"kind": kind, **tables.pop("towers", {})}
    job = {"model": "tiny", **tables.pop("job", {})}
    return build(settings_of(job=job, towers=towers, train=train or {}, **tables), load)


def trained(towers: DualEncoder, *, side: Any = "query") -> set[str]:
    """Names of what is trained in a tower, block numbers and all."""
    return {
        name.removeprefix("backbone.")
        for name, weights in towers.tower(side).named_parameters()
        if weights.requires_grad
    }


def used(towers: DualEncoder) -> set[str]:
    return set(towers.query.used_parameters())


def refused(error: type[AdiabatError], **settings: Any) -> str:
    with pytest.raises(error) as fault:
        built(**settings)
    said = str(fault.value)
    assert "\n" not in said
    return said


# --- What is trained ---


LORA = {"method": {"kind": "lora", "rank": 4}}
TOP = "projections.0.linear.weight"


@pytest.mark.parametrize(
    ("train", "is_trained"),
    [
        ({}, lambda name: True),
        ({"method": "bias"}, lambda name: name.endswith("bias") or name == TOP),
        (LORA, lambda name: ".lora_" in name or name == TOP),
        # A projection may be trained alone.
        ({"freeze": ["embeddings", "blocks[:]", "."]}, lambda name: name == TOP),
    ],
    ids=["all", "bias", "lora", "projection alone"],
)
def test_a_method_trains_its_weights_beside_a_projection_and_nothing_else(
    train: dict[str, Any], is_trained: Any
) -> None:
    towers = built(train=train, towers={"projection_width": 5}).towers
    assert TOP in trained(towers) == {name for name in used(towers) if is_trained(name)}


def test_alpha_is_the_factor_times_the_rank() -> None:
    def adapters(**alpha: float) -> list[tuple[int, float]]:
        towers = built(train={"method": {**LORA["method"], **alpha}}).towers
        parts = [part for part in towers.query.backbone.modules() if isinstance(part, BaseTunerLayer)]
        return [(part.r["default"], part.scaling["default"]) for part in parts]

    assert set(adapters()) == {(4, 1.0)}
    assert set(adapters(alpha=2.0)) == {(4, 0.5)}


def test_biases_that_were_added_count_from_zero() -> None:
    made = built(train={"method": "bias"}, load=lambda name, section: tiny_dual(kind="llama"))
    added = trained(made.towers)
    assert added
    assert not added & made.before.keys()
    for name in added:
        named_weights(made.towers)[name].data.fill_(2.0)
    changes = layers_changed(made, merged(made.towers))
    found = {change.name: (change.largest_before, change.relative) for change in changes}
    assert found == dict.fromkeys(added, (0.0, None))


@pytest.mark.usefixtures("two_blocks")
@pytest.mark.parametrize("pattern", ["embeddings", "blocks[0]", "attention"])
@pytest.mark.parametrize("method", [{}, {"method": "bias"}, LORA], ids=str)
def test_what_is_frozen_by_name_is_taken_from_what_the_method_trains_in_both_towers(
    method: dict[str, Any], pattern: str
) -> None:
    free = built(kind="asymmetric", train=method).towers
    towers = built(kind="asymmetric", train={**method, "freeze": [pattern]}).towers
    word = {"embeddings": "embeddings.", "blocks[0]": ".layer.0.", "attention": ".attention."}[pattern]
    for side in SIDES:
        assert trained(towers, side=side) == {name for name in trained(free, side=side) if word not in name}
        assert trained(towers, side=side)


def test_a_frozen_tower_trains_nothing_and_the_method_passes_it_by() -> None:
    for method in ({"dropout": True}, {**LORA, "dropout": True}):
        towers = built(kind="asymmetric", towers={"frozen": "document"}, train=method).towers
        assert trained(towers, side="document") == set()
        assert trained(towers)
        assert not any("lora" in name for name, _ in towers.document.named_parameters())
        assert weights_of(towers.document) == weights_of(model().document)
        assert {module.training for module in towers.query.backbone.modules()} == {True}
        assert not any(module.training for module in towers.document.modules())


# --- Towers ---


@pytest.mark.parametrize("key", ["projection_width", "projection_start"])
def test_a_frozen_side_gets_no_projection_and_the_other_its_width(tmp_path: Path, key: str) -> None:
    def towers(width: int) -> dict[str, Any]:
        start = {key: width} if key == "projection_width" else matrix(tmp_path / "layer.npy", 24, width)
        named = {"document_model": "tiny", "frozen": "document", **start}
        return {"kind": "asymmetric", "job": {"model": "wide"}, "towers": named}

    made = built(**towers(WIDTH)).towers
    assert [len(made.tower(side).projections) for side in SIDES] == [1, 0]
    assert made.query.projections[0].get_submodule("linear").weight.shape == (WIDTH, 24)
    assert made.width == WIDTH
    assert refused(ModelError, **towers(5)).endswith(f"tower, 16, got 5; give towers.{key} that width")


def test_the_seed_decides_projections_and_adapters_and_leaves_the_global_random_numbers_alone() -> None:
    settings: dict[str, Any] = {"train": LORA, "towers": {"projection_width": 5}}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = built(**settings, run={"seed": 3}).towers
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    before, again, other = (
        weights_of(towers.query)
        for towers in (one, *(built(**settings, run={"seed": seed}).towers for seed in (3, 4)))
    )
    assert again == before
    differing = {name for name in before if other[name] != before[name]}
    assert differing == {name for name in before if "lora_A" in name or name.startswith("projections.")}


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({}, "cosine"),
        ({"similarity": "dot"}, "dot"),
        ({"loss": {"kind": "triplet", "distance": "euclidean"}}, "euclidean"),
    ],
    ids=str,
)
def test_what_is_saved_names_the_similarity_that_was_trained(train: dict[str, Any], said: str) -> None:
    prompts = {"prompts": {"query": "ask: "}}

    def load(name: str, section: EncoderSection) -> DualEncoder:
        return replace(from_memory(name, section), root={**prompts, "similarity_fn_name": "manhattan"})

    assert built(train=train, load=load).towers.root == {**prompts, "similarity_fn_name": said}


# --- Guides ---


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("job.model", lambda name: {"job": {"model": name}}),
        ("towers.document_model", lambda name: {"towers": {"kind": "asymmetric", "document_model": name}}),
        ("train.loss.guide", lambda name: {"train": {"guide": name}}),
    ],
)
def test_a_model_that_is_not_there_is_told_by_its_setting(key: str, given: Any) -> None:
    faults = {
        "nowhere": "model must be a directory, got nowhere; in model check the name",
        "damaged": "damaged/MODEL must be whole",
    }

    def load(name: str, section: EncoderSection) -> DualEncoder:
        if name in faults:
            raise ModelError(faults[name])
        return from_memory(name, section)

    said = f"{key} must be a directory, got nowhere; in model check the name"
    assert refused(ModelError, load=load, **given("nowhere")) == said
    assert refused(ModelError, load=load, **given("damaged")) == "damaged/MODEL must be whole"


def test_a_guide_is_loaded_as_it_is_and_may_run_no_more_code_than_the_model() -> None:
    asked: list[tuple[str, EncoderSection]] = []

    def load(name: str, section: EncoderSection) -> DualEncoder:
        asked.append((name, section))
        return from_memory(name, section)

    rights = {"trust_remote_code": "tiny", "allow_pickles": True}
    encoder = {"query_prompt": "q: ", "max_tokens": 9, "pooling": "cls", **rights}
    found = built(train={"loss": {"guide": "other"}}, encoder=encoder, load=load)
    own = settings_of(encoder=encoder).encoder
    assert asked == [("tiny", own), ("other", EncoderSection(**rights))]
    assert weights_of(found.guide.query) == weights_of(model(seed=1).query)
    for name in (None, "self"):
        assert built(train={"loss": {"guide": name}} if name else {}).guide is None


# --- A projection that starts with given weights ---


def matrix(path: Path, *shape: int) -> dict[str, Any]:
    np.save(path, np.random.default_rng(0).normal(size=shape))
    return {"projection_start": str(path)}


@pytest.mark.parametrize("kind", ["shared", "asymmetric", "shared_projection"])
def test_a_projection_can_start_with_weights_of_ones_own(kind: str, tmp_path: Path) -> None:
    start = matrix(tmp_path / "layer.npy", WIDTH, 5)
    found, weights = built(kind=kind, encoder={"normalize": False}, towers=start), np.load(*start.values())
    plain = from_memory("tiny", EncoderSection(normalize=False))
    for side in SIDES:
        projected, own = (one.encode(TEXTS, side=side, precision="fp32") for one in (found.towers, plain))
        np.testing.assert_allclose(projected, own @ weights, atol=1e-5)
        assert "projections.0.linear.weight" in trained(found.towers, side=side)
    tops = [found.towers.tower(side).projections[0] for side in SIDES]
    assert (tops[0] is tops[1]) == (kind != "asymmetric")


def test_a_static_model_takes_the_weights_into_its_table(tmp_path: Path) -> None:
    start = load(write_static(tmp_path / "static"))
    settings, job = matrix(tmp_path / "layer.npy", start.width, 7), {"model": str(tmp_path / "static")}
    towers = built(job=job, towers=settings, load=lambda name, section: load(name)).towers
    before, after = start.query.backbone, towers.query.backbone
    np.testing.assert_allclose(after.table, before.table.numpy() @ np.load(tmp_path / "layer.npy"), atol=1e-5)
    assert after.weightless_id == before.weightless_id
    assert (towers.width, len(towers.query.projections)) == (7, 0)
    assert trained(towers) == {"token_embeddings.weight"}


# --- What is refused ---


def damaged(name: str, section: EncoderSection) -> DualEncoder:
    towers = model()
    with torch.no_grad():
        towers.query.backbone.get_input_embeddings().weight[7, 3] = torch.nan
    return towers


def test_weights_that_are_no_matrix_for_the_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "layer.npy"
    wanted = "towers.projection_start must be a .npy file of a matrix of finite numbers, got "
    said = refused(ConfigError, towers=matrix(path, 9, 5))
    assert "towers.projection_start must have a row for each of the 16 numbers" in said
    assert "got 9" in said
    for array in (np.ones(16), np.ones((0, 5)), np.full((16, 5), np.nan), np.ones((16, 5), dtype=complex)):
        np.save(path, array)
        said = refused(ConfigError, towers={"projection_start": str(path)})
        assert said == f"{wanted}{array.dtype} of shape {array.shape} in {path}; name another"
    np.save(path, np.array([{}]), allow_pickle=True)
    for content in (path.read_bytes(), path.read_bytes()[:5], b"", b"no array", None):
        path.write_bytes(content or b"")
        given = path if content is not None else tmp_path
        said = refused(ConfigError, towers={"projection_start": str(given)})
        assert said.startswith(f"{wanted}{given}, which cannot be read (")


WIDTHS = "train.matryoshka must hold widths below"


@pytest.mark.parametrize(
    ("error", "settings", "said"),
    [
        (ConfigError, {"train": {"matryoshka": [4, 16]}}, f"{WIDTHS} 16, that of the embeddings, got 16"),
        (ConfigError, {"train": {"matryoshka": [8]}, "towers": {"projection_width": 5}}, f"{WIDTHS} 5"),
        (ModelError, {"load": damaged}, "a finite number, got others in embeddings.word_embeddings.weight"),
    ],
)
def test_settings_beyond_a_model_fail(error: type[AdiabatError], settings: dict[str, Any], said: str) -> None:
    assert said in refused(error, **settings)


@pytest.mark.parametrize("bare", ["tiny", "other"])
def test_a_tokenizer_that_cannot_pad_is_refused_on_either_side(bare: str) -> None:
    def load(name: str, section: EncoderSection) -> DualEncoder:
        found = from_memory(name, section)
        if name == bare:
            found.query.tokenizer.pad_token = None
        return found

    said = refused(ModelError, kind="asymmetric", towers={"document_model": "other"}, load=load)
    assert said.startswith("the tokenizer must have a padding token, got none")
    assert 'set encoder.pad_token = "[SEP]"' in said


# --- What is saved and compared ---


def test_prints_are_those_of_the_models_that_were_loaded_whatever_was_made_of_them() -> None:
    plain = built().prints
    assert plain == (model().fingerprint("query"), model().fingerprint("document"))
    for train in (LORA, {"method": "bias"}, {"dropout": True}):
        assert built(train=train, towers={"projection_width": 5}, run={"seed": 9}).prints == plain
    apart = {"document_model": "other"}
    more = built(kind="asymmetric", towers=apart, train={"loss": {"guide": "other"}}).prints
    other = (model(seed=1).fingerprint("query"), model(seed=1).fingerprint("document"))
    assert more == (*plain, *other, *other)


def test_the_weights_at_the_start_are_kept_by_side_where_there_are_two() -> None:
    used = model().query.used_parameters()
    assert set(built(train=LORA).before) == set(used)
    apart = built(kind="asymmetric")
    assert set(apart.before) == {f"{side}.{name}" for side in SIDES for name in used}
    with torch.no_grad():
        for weights in apart.towers.query.parameters():
            weights.zero_()
    assert all(weights.equal(used[name.partition(".")[2]]) for name, weights in apart.before.items())


@pytest.mark.parametrize("kind", ["shared", "asymmetric", "shared_projection"])
def test_merged_towers_embed_alike_are_plain_and_share_what_they_shared(kind: str) -> None:
    towers = built(kind=kind, train=LORA, towers={"projection_width": 5}).towers
    with torch.no_grad():
        for name, weights in towers.query.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    before = weights_of(towers.query)
    plain = merged(towers)
    assert (plain.query is plain.document) == (kind == "shared")
    assert (plain.query.projections[0] is plain.document.projections[0]) == (kind != "asymmetric")
    for side in SIDES:
        ours, theirs = (one.encode(TEXTS, side=side, precision="fp32") for one in (towers, plain))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert set(named_weights(plain)) == set(built(kind=kind, towers={"projection_width": 5}).before)
    assert weights_of(towers.query) == before
