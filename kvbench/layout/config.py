"""A typed view of one Hugging Face config that refuses wrong types and remembers which keys were used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from kvbench.errors import ModelConfigError

# Keys that change what a cache weighs. A reader that leaves one of them unread has not understood the file, so the
# file is refused (see Config.refuse_unread) rather than sized as if the key were not there.
_SIGNIFICANT = frozenset(
    {
        "attention_chunk_size",
        "attention_head_dim",
        "attn_config",
        "attn_layer_indices",
        "attn_layer_offset",
        "attn_layer_period",
        "attn_type_list",
        "block_configs",
        "cla_share_factor",
        "compress_ratios",
        "cross_attention_layers",
        "full_attention_interval",
        "full_attn_idxs",
        "global_attn_every_n_layers",
        "global_head_dim",
        "head_dim",
        "hidden_size_per_head",
        "hybrid_layer_pattern",
        "hybrid_override_pattern",
        "index_head_dim",
        "index_topk",
        "index_topk_freq",
        "index_topk_pattern",
        "indexer_types",
        "is_encoder_decoder",
        "kv_channels",
        "kv_lora_rank",
        "layer_types",
        "layers_block_type",
        "linear_attn_config",
        "linear_num_key_heads",
        "multi_query",
        "multi_query_attention",
        "multi_query_group_num",
        "n_head_kv",
        "num_attention_groups",
        "num_global_key_value_heads",
        "num_key_value_heads",
        "num_key_value_heads_per_layer",
        "num_kv_heads",
        "num_kv_shared_layers",
        "per_layer_config",
        "qk_rope_head_dim",
        "sliding_window",
        "sliding_window_layers",
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "sparse_attention_config",
        "swa_head_dim",
        "swa_num_key_value_heads",
        "swa_v_head_dim",
        "use_cla",
        "use_sliding_window",
        "v_head_dim",
    }
)
# Harmless as long as the key named beside them is off or absent.
_IDLE_WITHOUT = {"cla_share_factor": "use_cla"}
_ABSENT = object()
# A window of "all tokens" is written as 2^31 or 10^9; products of a few such numbers are still exact everywhere.
_LARGEST = 1 << 40


class Config:
    """The text part of a config as a reader sees it; ``used`` maps each key that was read to its value as text.

    Absent and null are the same to every accessor except ``has``, as in Hugging Face's own classes.
    """

    def __init__(self, data: Mapping[str, object], model_type: str, prefix: str = "") -> None:
        self._data = data
        self.model_type = model_type
        self._prefix = prefix
        self.used: dict[str, str] = {}
        self.defaults: list[str] = []
        self._seen: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the key stands in the file, even as null; a null is then recorded as used."""
        if key in self._data:
            self.used.setdefault(self._path(key), _show(self._data[key]))
        return key in self._data

    def names(self) -> tuple[str, ...]:
        """The names in this section, where they are data such as layer numbers."""
        return tuple(map(str, self._data))

    def given(self, key: str) -> bool:
        """Whether the key stands in the file with a value other than null."""
        return self._data.get(key) is not None

    def count(self, *spellings: str) -> int:
        """A positive integer under one of its spellings; refused when absent."""
        value = self.count_or_none(*spellings)
        return self.missing(spellings[0]) if value is None else value

    def count_or_none(self, *spellings: str) -> int | None:
        """A positive integer, or None when no spelling has a value; refused when two spellings disagree."""
        found = {key: self._integer(key, least=1) for key in spellings if self.given(key)}
        if len(set(found.values())) > 1:
            pairs = " and ".join(f"{key}={value}" for key, value in found.items())
            self.refuse(f"{pairs} contradict each other")
        return next(iter(found.values()), None)

    def natural_or_none(self, key: str) -> int | None:
        """An integer of at least 0, or None when absent."""
        return self._integer(key, least=0) if self.given(key) else None

    def flag(self, key: str) -> bool:
        """A boolean; False when absent, as every flag that kvbench reads defaults to."""
        value = self._value(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            self.refuse(f"{self._path(key)} is {_show(value)}, not true or false")
        return value

    def text_or_none(self, key: str) -> str | None:
        """A string, or None when absent."""
        value = self._value(key)
        if value is not None and not isinstance(value, str):
            self.refuse(f"{self._path(key)} is {_show(value)}, not a string")
        return value

    def is_text(self, key: str) -> bool:
        """Whether the key's value is a string, for keys that may also be a number."""
        return isinstance(self._data.get(key), str)

    def texts_or_none(self, key: str) -> tuple[str, ...] | None:
        """A list of strings, or None when absent."""
        items = self._list(key)
        if items is None:
            return None
        if not all(isinstance(item, str) for item in items):
            self.refuse(f"{self._path(key)} is not a list of strings")
        return tuple(str(item) for item in items)

    def naturals_or_none(self, key: str) -> tuple[int, ...] | None:
        """A list of integers of at least 0, or None when absent."""
        items = self._list(key)
        if items is None:
            return None
        return tuple(self._checked(item, f"{self._path(key)}[{index}]", 0) for index, item in enumerate(items))

    def section_or_none(self, key: str) -> Config | None:
        """A nested object as a Config that shares this one's records, or None when absent."""
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.refuse(f"{self._path(key)} is {_show(value)}, not an object")
        return self._nested(value, f"{self._path(key)}.")

    def sections(self, key: str) -> tuple[Config, ...]:
        """A list of objects; refused when absent."""
        items = self._list(key)
        if items is None:
            return self.missing(key)
        if not all(isinstance(item, Mapping) for item in items):
            self.refuse(f"{self._path(key)} is not a list of objects")
        return tuple(
            self._nested(item, f"{self._path(key)}[{index}].")
            for index, item in enumerate(items)
            if isinstance(item, Mapping)
        )

    def default(self, key: str, value: int, source: str) -> int:
        """``value`` for an absent key, recorded with where the default is documented."""
        self.defaults.append(f"{self._path(key)} is absent: {value} ({source})")
        return value

    def ignore(self, *keys: str) -> None:
        """Mark keys as understood and without effect on the cache of this family."""
        self._seen.update(keys)

    def missing(self, key: str) -> NoReturn:
        """Refuse the config because ``key`` is absent."""
        self.refuse(f"{self._path(key)} is missing and {self.model_type} has no documented default for it")

    def refuse(self, reason: str) -> NoReturn:
        """Raise ModelConfigError naming the model type; ``reason`` names the key."""
        raise ModelConfigError(
            f"this {self.model_type} config cannot be sized: {reason}; check the file against the model's Hub page."
        )

    def refuse_unread(self) -> None:
        """Refuse a config in which a key that changes the cache has a value and was not read."""
        unread = sorted(key for key in _SIGNIFICANT - self._seen if self._active(key))
        if unread:
            self.refuse(
                f"{', '.join(unread)} would change its cache, and kvbench does not know what "
                f"{'they do' if len(unread) > 1 else 'it does'} in {self.model_type}"
            )

    def _active(self, key: str) -> bool:
        value = self._data.get(key)
        switch = _IDLE_WITHOUT.get(key)
        if switch is not None and not self._data.get(switch):
            return False
        return value is not None and value is not False and value not in ([], "", {})

    def _nested(self, data: Mapping[str, object], prefix: str) -> Config:
        nested = Config(data, self.model_type, prefix)
        nested.used, nested.defaults = self.used, self.defaults
        return nested

    def _list(self, key: str) -> list[object] | None:
        value = self._value(key)
        if value is not None and not isinstance(value, list):
            self.refuse(f"{self._path(key)} is {_show(value)}, not a list")
        return value

    def _integer(self, key: str, least: int) -> int:
        return self._checked(self._value(key), self._path(key), least)

    def _checked(self, value: object, path: str, least: int) -> int:
        # bool is an int to Python, and 1.0 equals 1: neither is what a config means by a count.
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(f"{path} is {_show(value)}, not an integer")
        if value < least:
            self.refuse(f"{path} is {_show(value)}, less than {least}")
        if value > _LARGEST:
            self.refuse(f"{path} is {_show(value)}, larger than that of any model")
        return value

    def _value(self, key: str) -> object:
        self._seen.add(key)
        value = self._data.get(key, _ABSENT)
        if value is _ABSENT:
            return None
        self.used[self._path(key)] = _show(value)
        return value

    def _path(self, key: str) -> str:
        return f"{self._prefix}{key}"


def _show(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{len(value)} entries]"
    if isinstance(value, Mapping):
        return "{...}"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
