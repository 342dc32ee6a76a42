"""Texts for ids, where the proxy has the model's tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.endpoints.generate.generated import Generated
from proxy.endpoints.generate.shape import Asked

if TYPE_CHECKING:
    from proxy.tokenisation.tokenizer import PromptTokenizer


class Texts:
    """Those of one request; without a tokenizer texts stay empty.

    Args:
        tokenizer: of the model, or None.
        asked: the request.
    """

    def __init__(self, tokenizer: PromptTokenizer | None, asked: Asked) -> None:
        self._tokenizer = tokenizer if asked.ids else None
        self._skip_special = not asked.keep_special

    def fill(self, generated: Generated) -> None:
        """Set the text of the ids that have come."""
        if self._tokenizer is not None:
            generated.text = self._tokenizer.decode(
                generated.token_ids, skip_special_tokens=self._skip_special
            )
