"""Token counts by a model's own tokenizers."""

from collections.abc import Sequence

from adiabat.data.records import Side
from adiabat.model.towers import DualEncoder


class ModelTokens:
    """The two tokenizers of a model with their prompts and limits, as `adiabat.inspection.lengths.TokenCounter` wants them."""

    def __init__(self, model: DualEncoder) -> None:
        """Take the tokenizers."""
        self._model = model

    @property
    def name(self) -> str:
        """Of the model."""
        return self._model.name

    def limit(self, side: Side) -> int:
        """Where texts are cut."""
        return self._model.tower(side).settings.limit(side)

    def count(self, texts: Sequence[str], *, side: Side) -> list[int]:
        """Tokens of each text with prompt and special tokens, cut nowhere.

        Returns:
            One count per text.
        """
        if not texts:
            return []
        tower = self._model.tower(side)
        prompt = tower.settings.prompt(side)
        encoded = tower.tokenizer(
            [prompt + text for text in texts],
            truncation=False,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # or it would warn of every text beyond its limit, which is what is counted here
        )["input_ids"]
        return [len(ids) for ids in encoded]
