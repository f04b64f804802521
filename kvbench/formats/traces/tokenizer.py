"""A tokenizer and chat template, read from disk: texts and messages as the tokens that a server makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.errors import InputFileError

_FILE, _CONFIG, _TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The library's tokenizer, and the compiled chat template (None where the model brings none)."""

    encode: Any
    template: Any
    special: Mapping[str, str]

    def text(self, text: str) -> Sequence[int]:
        """The tokens of a prompt."""
        tokens: Sequence[int] = self.encode(text).ids
        return tokens

    def chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> Sequence[int]:
        """The tokens of a chat, in the model's own template where it brings one; ValueError where that refuses."""
        from jinja2 import TemplateError

        plain = [{**message, "content": _flat(message.get("content"))} for message in messages]
        if self.template is None:
            return self.text("".join(f"{message.get('role', '')}: {message['content']}\n" for message in plain))
        try:
            text = self.template.render(messages=plain, tools=tools, add_generation_prompt=True, **self.special)
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"the chat template refuses it ({error})") from None
        tokens: Sequence[int] = self.encode(text, add_special_tokens=False).ids
        return tokens


def load(path: Path) -> Tokenizer:
    """The tokenizer in a folder or file; InputFileError where there is none, or the library is not installed."""
    try:
        from tokenizers import Tokenizer as Library
    except ImportError:
        raise InputFileError(
            "texts need the tokenizers library; pip install 'kvbench[traces]', or give a trace with hash_ids."
        ) from None
    file = path / _FILE if path.is_dir() else path
    if not file.is_file():
        raise InputFileError(f"{file} does not exist; name a tokenizer.json or its folder with --tokenizer.")
    try:
        library = Library.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise InputFileError(f"{file} is no tokenizer ({error}); name the model's tokenizer.json.") from None
    config = _config(file.with_name(_CONFIG))
    source = _source(file.with_name(_TEMPLATE), config)
    special = {name: text for name, value in config.items() if name.endswith("_token") and (text := _token(value))}
    return Tokenizer(library.encode, None if source is None else _compiled(source, file), special)


def _config(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise InputFileError(f"{path} is no JSON; copy the tokenizer again.") from None
    return found if isinstance(found, dict) else {}


def _source(file: Path, config: Mapping[str, Any]) -> str | None:
    if file.is_file():
        return file.read_text(encoding="utf-8", errors="replace")
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _compiled(source: str, file: Path) -> Any:
    """The template in a sandbox: it comes with a download and is no code of ours."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    environment.filters["tojson"] = _to_json
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise InputFileError(f"the chat template beside {file} is none ({error}); copy the tokenizer again.") from None


def _refuse(message: str) -> str:
    raise ValueError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _token(value: Any) -> str | None:
    """A special token, which is written as text or as an object."""
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else None


def _flat(content: Any) -> str:
    """The text of a message, whose parts may be a list; ValueError where a part is no text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise ValueError("a message's content is neither text nor a list of parts")
    parts = [part.get("text") if isinstance(part, dict) else None for part in content]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("a message holds a part that is no text")
    return "".join(str(part) for part in parts)
