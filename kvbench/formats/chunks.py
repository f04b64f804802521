"""What a chunk of a streamed answer holds, in OpenAI's shape: completions and chat, content and reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Text = Literal["content", "reasoning", "tool call"]


def first_choice(choices: object) -> Mapping[str, Any]:
    """The first choice of a chunk; empty where there is none, as in a usage chunk (sgl-project/sglang#29251)."""
    found = choices[0] if isinstance(choices, list) and choices else None
    return found if isinstance(found, dict) else {}


def text_in(choice: Mapping[str, Any]) -> Text | None:
    """The kind of output that a choice brings, None for none: a role chunk has empty content (api7/aisix#869)."""
    found = choice.get("delta")
    delta = found if isinstance(found, dict) else {}
    if choice.get("text") or delta.get("content"):
        return "content"
    if delta.get("reasoning_content") or delta.get("reasoning"):
        return "reasoning"
    # An answer that is only a call of a tool has no text at all.
    return "tool call" if delta.get("tool_calls") or delta.get("function_call") else None
