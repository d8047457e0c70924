r"""Freezing by name: one grammar of presets over the parameter names of every backbone layout (Vasilyev et al. 2024).

A pattern is one of

- ``embeddings.base``: the tables of tokens, absolute positions and token types;
- ``embeddings``: the whole embedding block, that is, the tables with their norm and their projection to the hidden width;
- ``blocks``, ``blocks[0]``, ``blocks[-1]``, ``blocks[0:6]``, ``blocks[:]``: transformer blocks, counted as Python counts; alone or
  followed by ``.attention``, ``.intermediate``, ``.output``, ``.output.dense``, ``.output.dense.weight`` or ``.output.dense.bias``, a part
  of those blocks;
- ``attention``, ``intermediate``, ``output``, ``output.dense``, ``output.dense.weight``, ``output.dense.bias``: that part of every block;
- anything else: a regular expression, looked for anywhere in the full parameter name (`re.search`; anchor it with ``^`` and ``$``).

A low-rank adapter goes with the dense layer that it stands beside: every pattern that names the layer's weight names its adapter too.

Presets read names, not classes, so a prefix such as ``encoder.`` or a wrapping module does not matter. Known layouts: BERT and its
relatives (RoBERTa, XLM-R, MPNet, ELECTRA), DistilBERT, ALBERT, ModernBERT, the T5 encoder, GPT-2, GPT-NeoX, and Llama and its
relatives (Mistral, Qwen, Gemma, Phi-3), Falcon, GPT-J, OPT. There three parts, ``attention``, ``intermediate`` and ``output``, make up the
whole block, and the others are parts of ``output``:

- ``attention``: the projections of attention, with relative position tables stored inside a block (T5 keeps in block 0 one that all
  blocks read) and the norms of queries and keys;
- ``intermediate``: the feed-forward's way up, gates included;
- ``output.dense``: the feed-forward's way down, weight and bias, never attention's own ``output.dense`` (write
  ``attention\.output\.dense`` for it); ``output.dense.weight`` and ``output.dense.bias``: one of the two;
- ``output``: the way down with the norm that follows it, where there is one.

A norm belongs to the part whose output it takes where it comes after (BERT: ``attention.output.LayerNorm`` to ``attention``,
``output.LayerNorm`` to ``output``), and to the part that it feeds where it comes before (Llama: ``input_layernorm`` to
``attention``, ``post_attention_layernorm`` to ``intermediate``). Outside blocks and embeddings are the final norm, poolers, and tables
of relative positions shared by all blocks (MPNet, DeBERTa): only a regular expression reaches those.

Reference:
    Vasilyev et al. 2024, table 1 (embeddings, attention, intermediate, output.dense).
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from torch import nn

from adiabat.core.errors import ConfigError, ModelError, several

Part = Literal["attention", "intermediate", "output", "output.dense", "output.dense.weight", "output.dense.bias"]
"""Parts of a transformer block: three that make it up, and of the third the dense layer and its two parameters."""

_PARTS: tuple[Part, ...] = get_args(Part)

_BLOCK = re.compile(r"(?:^|\.)(?:layers?|blocks?|h|albert_layer_groups)\.(\d+)\.")
_TABLE = re.compile(r"(?:^|\.)(?:(?:word|tok|token|position|token_type)_embeddings|embed_(?:in|tokens|positions)|shared|wte|wpe)\.")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embeddings|embeddings_project|embedding_hidden_mapping_in|word_embeddings_layernorm|layernorm_embedding|project_in)\."
)
_POOLER = re.compile(r"(?:^|\.)pooler\.")
_ADAPTER = re.compile(r"\.(?:base_layer|lora_[AB]\.\w+)(?=\.)")
"""What peft puts between a dense layer's name and ``weight`` or ``bias``."""

# What follows the block's number, per part; the first rule that matches decides.
_PART_RULES: tuple[tuple[Part, re.Pattern[str]], ...] = (
    ("output.dense", re.compile(r"layer\.1\.DenseReluDense\.wo\.")),
    ("attention", re.compile(r"layer\.0\.")),  # T5 numbers its sublayers: 0 attends, 1 feeds forward
    ("intermediate", re.compile(r"layer\.1\.")),
    ("attention", re.compile(r"(?:albert_layers\.\d+\.)?(?:attention|self_attn|self_attention|attn)\.")),
    ("attention", re.compile(r"(?:attn_norm|sa_layer_norm|self_attn_layer_norm|input_layernorm|ln_1|norm_1)\.")),
    ("output.dense", re.compile(r"(?:output\.dense|(?:albert_layers\.\d+\.)?ffn_output|ffn\.lin2|ffn\.down_proj|fc2)\.")),
    ("output.dense", re.compile(r"mlp\.(?:dense_4h_to_h|down_proj|Wo|c_proj|fc_out|fc2)\.")),
    ("output", re.compile(r"(?:output|(?:albert_layers\.\d+\.)?full_layer_layer_norm|output_layer_norm)\.")),
    ("output", re.compile(r"post_(?:feedforward|mlp)_layernorm\.")),
    ("intermediate", re.compile(r"(?:albert_layers\.\d+\.ffn|intermediate|ffn\.(?:lin1|up_proj)|fc1)\.")),
    ("intermediate", re.compile(r"(?:mlp_norm|ln_2|norm_2|pre_feedforward_layernorm|final_layer_norm)\.")),
    ("intermediate", re.compile(r"mlp\.(?:dense_h_to_4h|gate_proj|up_proj|gate_up_proj|Wi|c_fc|fc_in|fc1)\.")),
)

_PRESET = re.compile(r"(blocks)(?:\[([^\[\]]*)\])?(?:\.(attention|intermediate|output(?:\.dense(?:\.(?:weight|bias))?)?))?")
_SPAN = re.compile(r"\s*(-?\d+)?\s*(:)?\s*(-?\d+)?\s*")


@dataclass(frozen=True, slots=True)
class FreezeReport:
    """What freezing did.

    Attributes:
        names: Parameters that the patterns froze, in the model's order.
        frozen: Numbers that are not trained, those frozen earlier included.
        trainable: Numbers that are trained.
    """

    names: tuple[str, ...]
    frozen: int
    trainable: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the parameters of one model lie, read off their names.

    Attributes:
        tables: Names of ``embeddings.base``.
        embeddings: Names of the whole embedding block.
        blocks: Per block in order, its names.
        parts: The part of each name inside a block, where it is known.
        stacks: Name prefixes under which blocks were found; more than one where the model has two towers of blocks.
    """

    tables: list[str]
    embeddings: list[str]
    blocks: list[list[str]]
    parts: dict[str, Part]
    stacks: list[str]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A parsed ``blocks[...]`` pattern: ``start:stop`` (or the one block `start` where `single`) and perhaps a part."""

    start: int | None
    stop: int | None
    single: bool
    part: Part | None


def frozen_parameters(backbone: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Names of the parameters that the patterns freeze; changes nothing.

    Args:
        patterns: Presets and regular expressions of this module's grammar; their matches are united. None of them: nothing is frozen.
    """
    return _frozen(backbone, _matches(backbone, patterns))


def freeze(backbone: nn.Module, patterns: Sequence[str], *, alone: bool = True) -> FreezeReport:
    """Switch off the gradient of the parameters that the patterns name; the others stay as they are."""
    matches = _matches(backbone, patterns)
    names = _frozen(backbone, matches, alone=alone)
    sizes = {name: weight.numel() for name, weight in backbone.named_parameters()}
    for name in names:
        backbone.get_parameter(name).requires_grad_(False)
    trainable = sum(weight.numel() for weight in backbone.parameters() if weight.requires_grad)
    return FreezeReport(names=tuple(names), frozen=sum(sizes.values()) - trainable, trainable=trainable)


def check_patterns(patterns: Sequence[str]) -> None:
    """Check the form of patterns, for which no model is needed."""
    if isinstance(patterns, str):
        raise ConfigError(f'freeze must be a list of patterns, got "{patterns}"; write ["{patterns}"]')
    faults = [fault for pattern in patterns if (fault := _form_fault(pattern))]
    if faults:
        raise ConfigError(several(faults))


def _form_fault(pattern: str) -> str | None:
    """What is wrong with the form of a pattern, or None."""
    if not pattern.strip():
        return 'freeze must hold patterns, got an empty text; remove it, or write "." for every parameter'
    if pattern.startswith("blocks["):
        return None if _blocks(pattern) else _blocks_fault(pattern)
    try:
        re.compile(pattern)
    except re.error as error:
        return f'freeze must hold presets or regular expressions, got "{pattern}" ({error}); escape special characters with a backslash'
    return None


def _blocks_fault(pattern: str) -> str:
    """Message for a text that begins like ``blocks[...]`` and is none."""
    return f'freeze must use blocks[i], blocks[i:j] or blocks[:], alone or with .{", .".join(_PARTS)}, got "{pattern}"; correct it'


def _blocks(pattern: str) -> _Blocks | None:
    """Parse ``blocks[...]``, ``blocks.PART`` and a part alone; None for anything else."""
    match = _PRESET.fullmatch(f"blocks.{pattern}" if pattern in _PARTS else pattern)
    if match is None:
        return None
    part = next((part for part in _PARTS if part == match[3]), None)
    if match[2] is None:
        return _Blocks(None, None, single=False, part=part)
    span = _SPAN.fullmatch(match[2])
    if span is None or (span[2] is None and (span[1] is None or span[3] is not None)):
        return None
    start, stop = (int(text) if text else None for text in (span[1], span[3]))
    return _Blocks(start, stop, single=span[2] is None, part=part)


def _matches(backbone: nn.Module, patterns: Sequence[str]) -> dict[str, list[str]]:
    """Per pattern, the names it covers; every fault of every pattern in one error."""
    check_patterns(patterns)
    aliases = _aliases(backbone)
    layout = _layout(list(dict.fromkeys(aliases.values())))
    found: dict[str, list[str]] = {}
    faults = []
    for pattern in patterns:
        try:
            found[pattern] = _match(pattern, layout, aliases)
        except ModelError as error:
            faults.append(str(error))
    if faults:
        raise ModelError(several(faults))
    return found


def _frozen(backbone: nn.Module, matches: Mapping[str, Sequence[str]], *, alone: bool = True) -> list[str]:
    """The matches of all patterns in the model's order; ModelError where nothing is left to train."""
    chosen = {name for found in matches.values() for name in found}
    left = [name for name, weight in backbone.named_parameters() if weight.requires_grad and name not in chosen]
    if alone and chosen and all(_POOLER.search(name) for name in left):
        blocks = _layout([name for name, _ in backbone.named_parameters()]).blocks
        advice = "remove a pattern" if blocks else "a model without blocks consists of its embeddings: freeze nothing, []"
        raise ModelError(f"freeze must leave something to train, got {_quoted(matches)}, which leave nothing; {advice}")
    return [name for name, _ in backbone.named_parameters() if name in chosen]


def _aliases(backbone: nn.Module) -> dict[str, str]:
    """Every name of every parameter, to the name it goes by: a tied table has several."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(weight), name) for name, weight in backbone.named_parameters(remove_duplicate=False)}


def _plain(name: str) -> str:
    """The name that a parameter of a dense layer with an adapter would have without it."""
    return _ADAPTER.sub("", name)


def _match(pattern: str, layout: _Layout, aliases: Mapping[str, str]) -> list[str]:
    """The names one pattern covers; ModelError where there is none."""
    blocks = _blocks(pattern)
    if blocks:
        names = _in_blocks(pattern, blocks, layout)
    elif pattern in ("embeddings.base", "embeddings"):
        names = layout.tables if pattern == "embeddings.base" else layout.embeddings
    else:
        names = list(dict.fromkeys(own for name, own in aliases.items() if re.search(pattern, name) or re.search(pattern, _plain(name))))
    if not names:
        raise ModelError(_nothing_matched(pattern, layout, set(aliases.values())))
    return names


def _in_blocks(pattern: str, wanted: _Blocks, layout: _Layout) -> list[str]:
    """The names that a block pattern covers; ModelError where a block it names is not there."""
    if len(layout.stacks) > 1:
        raise ModelError(
            f'freeze pattern "{pattern}" must mean one stack of blocks, got a model with {len(layout.stacks)} '
            f"({', '.join(layout.stacks)}); use a regular expression on the parameter names"
        )
    count = len(layout.blocks)
    last = count - 1 if wanted.single else count
    if any(bound is not None and not -count <= bound <= last for bound in (wanted.start, wanted.stop)):
        raise ModelError(f'freeze pattern "{pattern}" must stay within the blocks of this model, which has {_numbered(count)}; correct it')
    chosen = [layout.blocks[wanted.start or 0]] if wanted.single else layout.blocks[wanted.start : wanted.stop]
    return [name for block in chosen for name in block if wanted.part is None or _covers(wanted.part, name, layout)]


def _covers(part: Part, name: str, layout: _Layout) -> bool:
    """Whether a parameter belongs to a part of its block: the way down to three of them, and its weight, or its bias, to a fourth."""
    path = f"{layout.parts.get(name)}.{_plain(name).rpartition('.')[2]}."
    return path.startswith(f"{part}.")


def _layout(names: Iterable[str]) -> _Layout:
    """Sort parameter names into embeddings, blocks and parts of blocks."""
    tables: list[str] = []
    embeddings: list[str] = []
    blocks: dict[tuple[str, int], dict[str, str]] = {}
    for name in names:
        block = _BLOCK.search(name)
        if block:
            blocks.setdefault((name[: block.start(1)], int(block[1])), {})[name] = name[block.end() :]
        elif _TABLE.search(name):
            tables.append(name)
            embeddings.append(name)
        elif _EMBEDDING.search(name):
            embeddings.append(name)
    ordered = sorted(blocks.items())
    parts = {name: part for _, block in ordered for name, part in _parts(block).items()}
    return _Layout(tables, embeddings, [list(block) for _, block in ordered], parts, sorted({stack for stack, _ in blocks}))


def _parts(block: Mapping[str, str]) -> dict[str, Part]:
    """The part of each parameter of one block, given full name and name inside the block; unknown ones are left out."""
    # Llama's `post_attention_layernorm` stands before the feed-forward; in blocks with a norm after that (Gemma 2), after attention.
    sandwiched = any("_feedforward_layernorm." in inner or "post_mlp_layernorm." in inner for inner in block.values())
    after_attention: Part = "attention" if sandwiched else "intermediate"
    rules = ((after_attention, re.compile(r"post_attention_layernorm\.")), *_PART_RULES)
    found = {name: next((part for part, rule in rules if rule.match(inner)), None) for name, inner in block.items()}
    return {name: part for name, part in found.items() if part}


def _nothing_matched(pattern: str, layout: _Layout, names: Iterable[str]) -> str:
    """Message for a pattern without a match: near names, then what this model understands."""
    presets = _presets(layout)
    stems = {component for name in names for component in name.split(".") if not component.isdigit()} - {"weight", "bias"}
    paths = {re.sub(r"\.(?:weight|bias)$", "", name) for name in names}
    near = difflib.get_close_matches(pattern, [*presets, *sorted(stems), *sorted(paths)], n=5, cutoff=0.6)
    hint = f"near names: {', '.join(dict.fromkeys(near))}; " if near else ""
    known = [preset for preset in presets if "[" not in preset]
    return (
        f'freeze pattern "{pattern}" must match a parameter, got no match; {hint}'
        f"this model knows {', '.join(known)} and has {_numbered(len(layout.blocks))}"
    )


def _presets(layout: _Layout) -> list[str]:
    """The presets that cover something in this model, single blocks included."""
    parts = [part for part in _PARTS if any(_covers(part, name, layout) for name in layout.parts)]
    heads = [f"blocks[{index}]" for index in range(len(layout.blocks))]
    return [
        *(["embeddings.base"] if layout.tables else []),
        *(["embeddings"] if layout.embeddings else []),
        *(["blocks"] if layout.blocks else []),
        *parts,
        *heads,
        *(f"{head}.{part}" for head in ["blocks", *heads] for part in parts),
    ]


def _numbered(count: int) -> str:
    """How many blocks there are, and their numbers."""
    if count < 2:
        return "1 block, blocks[0]" if count else "no blocks that the presets know"
    return f"{count} blocks, blocks[0] to blocks[{count - 1}]"


def _quoted(patterns: Iterable[str]) -> str:
    """The patterns as they stand in a configuration."""
    return "[" + ", ".join(f'"{pattern}"' for pattern in patterns) + "]"
