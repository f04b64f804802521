"""From what the user calls a model to its size: files, folders, shipped profiles and Hub ids.

Only config.json and hf_quant_config.json are ever read or fetched, as JSON; no code of a model is run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from kvbench.errors import ModelConfigError, UsageError
from kvbench.layout import ReadConfig, read_layout, sizing
from kvbench.layout.dtype import Checkpoint, KVDtype, protect_ends, resolve
from kvbench.layout.kv import KVLayout
from kvbench.layout.sized import SizedModel
from kvbench.profiles import profiles_dir

DEFAULT_MODELS = ("openai/gpt-oss-120b", "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B")

_CONFIG, _QUANT = "config.json", "hf_quant_config.json"
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_CONNECT_TIMEOUT_S = 5
_PROFILES = "size a profile of the same geometry ('kvbench models')"
_OFFLINE = f"check the network and HF_HUB_OFFLINE, give its config.json as a file, or {_PROFILES}"
_GATED = f"is gated; accept its terms on the Hub and log in with 'hf auth login' or HF_TOKEN, or {_PROFILES}"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*\w")
_HUB_CACHE = re.compile(r"models--(.+?)--(.+)")


@dataclass(frozen=True, slots=True)
class FoundConfig:
    """A config and what is known about where it came from; ``hf_quant`` is hf_quant_config.json beside it."""

    name: str
    source: str
    config: Mapping[str, object]
    hf_quant: Mapping[str, object] | None = None
    warnings: tuple[str, ...] = ()


def size_model(
    model: str, *, tp: int = 1, pp: int = 1, kv_dtype: str = "auto", block_tokens: int = 16, dcp: int = 1
) -> SizedModel:
    """``model`` sized for a deployment; ModelConfigError when it is refused, UsageError for impossible options."""
    for option, value in (("--tp", tp), ("--pp", pp), ("--block-tokens", block_tokens), ("--dcp", dcp)):
        if value < 1:
            raise UsageError(f"{option} {value} is not a positive number; give 1 or more.")
    found = find_config(model)
    read = read_layout(found.config)
    dtype = resolve(kv_dtype, read.layout, Checkpoint(found.config, read.text, found.hf_quant))
    return size_layout(found, read, dtype, tp=tp, pp=pp, block_tokens=block_tokens, dcp=dcp)


def size_layout(
    found: FoundConfig, read: ReadConfig, dtype: KVDtype, *, tp: int, pp: int, block_tokens: int, dcp: int = 1
) -> SizedModel:
    """The sizes of a layout; ModelConfigError where the engine refuses the parallelism."""
    layout = protect_ends(read.layout, dtype.name)
    sizing.check_parallel(layout, tp, pp)
    sizing.check_context_parallel(layout, tp, dcp)
    sizing.rank_state_bytes(layout, tp)
    one_copy = [(layer, sizing.token_bytes(layer, dtype.name)) for layer in layout.layers]
    rank_token = sum(sizing.rank_token_bytes(layer, dtype.name, tp) for layer in layout.layers)
    return SizedModel(
        model=found.name,
        source=found.source,
        kv_dtype=dtype.name,
        kv_dtype_source=dtype.source,
        tp=tp,
        pp=pp,
        block_tokens=block_tokens,
        layout=layout,
        bytes_per_token=sum(size for _, size in one_copy),
        growing_bytes_per_token=sum(size for layer, size in one_copy if layer.window is None),
        rank_block_bytes=rank_token * block_tokens,
        server_block_bytes=rank_token * block_tokens * tp,
        state_bytes=sizing.state_bytes(layout),
        warnings=(*found.warnings, *dtype.warnings, *_warnings(layout, read.defaults, tp, pp, dcp)),
        state_unknown=layout.state_unknown,
        index_bytes_per_token=sizing.index_bytes_per_token(layout),
        cross_bytes=sizing.cross_bytes(layout, dtype.name),
        stages=sizing.stages(layout, dtype.name, tp, pp, block_tokens),
        model_type=read.model_type,
        used=read.used,
        defaults=read.defaults,
        dcp=dcp,
    )


def _warnings(layout: KVLayout, defaults: tuple[str, ...], tp: int, pp: int, dcp: int) -> list[str]:
    found = list(layout.notes)
    found += [text for text in defaults if "num_key_value_heads" in text]
    most = max((layer.kv_heads for layer in layout.layers if layer.owns_kv and layer.kind != "mla"), default=tp)
    if tp > most:
        found.append(f"TP {tp} replicates KV heads: some layers have {most} or fewer, so the server holds copies")
    if tp > 1 and layout.count("mla"):
        found.append(f"the MLA latent is replicated: each of {tp} ranks holds all of it")
    index = sizing.index_bytes_per_token(layout)
    if index:
        found.append(f"sparse-attention index keys add {index:,} bytes per token, in --context but not in block sizes")
    groups = {part.units for layer in layout.layers for part in layer.state if part.replicates}
    # vLLM 0.24.0 mamba_mixer2.py asserts n_groups % tp == 0 or n_groups == 1.
    found += [f"vLLM refuses TP {tp}: it does not divide {n} Mamba groups" for n in sorted(groups - {1}) if n % tp]
    if layout.state_unknown:
        found.append(f"recurrent state not sized: {layout.state_unknown}")
    if layout.cross is not None:
        found.append(_cross_warning(layout.cross.tokens))
    if dcp > 1:
        found.append(
            f"DCP {dcp}: a rank's block stays this size, and one block of the server covers {dcp} x its tokens"
        )
    if pp > 1:
        found.append(f"rank and server block count all {pp} pipeline stages together; stages has each")
    return found


def _cross_warning(tokens: int | None) -> str:
    if tokens is None:
        return "cross-attention KV depends on the request's own prompt and is in no number here"
    return f"cross-attention keeps {tokens:,} encoder tokens per request, apart from the per-token sizes"


def find_config(model: str) -> FoundConfig:
    """The config behind a path, a shipped profile's name or a Hub id; ModelConfigError with the next step if none."""
    if not model.strip():
        raise ModelConfigError("an empty model name; name a profile, a config.json, its folder or a Hub id.")
    path = Path(model).expanduser()
    kind = _kind_of(path)
    if kind == "file":
        return _from_file(path)
    if kind == "folder":
        return _from_file(path / _CONFIG)
    profile = find_profile(model)
    if profile is not None:
        return profile
    if kind == "other folder":
        raise ModelConfigError(f"the folder {model} holds no {_CONFIG}; name a folder that does, or a Hub id.")
    if _HUB_ID.fullmatch(model):
        return _from_hub(model)
    raise ModelConfigError(f"no model {model!r}: no such file or folder, and {_no_profile(model)}")


def _kind_of(path: Path) -> Literal["file", "folder", "other folder", "nothing"]:
    try:
        if path.is_file():
            return "file"
        if (path / _CONFIG).is_file():
            return "folder"
        return "other folder" if path.is_dir() else "nothing"
    except OSError:  # a name too long for a path, or a folder that may not be entered
        return "nothing"


def find_profile(name: str) -> FoundConfig | None:
    """The shipped profile called ``name`` (``Qwen/Qwen3-8B``, or its last part in any case), None if there is none."""
    short = name.rpartition("/")[2].lower()
    path = profiles_dir() / "models" / f"{short}.yaml"
    if not re.fullmatch(r"[\w.-]{1,100}", short) or not path.is_file():
        return None
    found = read_profile(path)
    return found if name.lower() in (short, found.name.lower()) else None


def profile_paths() -> list[Path]:
    """The files of all shipped model profiles, by name."""
    return sorted((profiles_dir() / "models").glob("*.yaml"))


def read_profile(path: Path) -> FoundConfig:
    """One shipped profile: ``name``, ``source`` and a ``config`` with the Hugging Face keys that geometry needs."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    try:
        return FoundConfig(data["name"], f"profile {path.name}: {data['source']}", data["config"])
    except (KeyError, TypeError) as error:
        raise ModelConfigError(f"the profile {path} lacks name, source or config; reinstall kvbench.") from error


def _no_profile(model: str) -> str:
    import difflib

    stems = [path.stem for path in profile_paths()]
    close = difflib.get_close_matches(model.lower().rpartition("/")[2], stems, n=3)
    hint = f"the nearest profiles are {', '.join(close)}" if close else "no profile has that name"
    return f"{hint}; 'kvbench models' lists them, and a Hub id looks like org/name."


def _from_file(path: Path) -> FoundConfig:
    config = _read_json(path)
    quant = path.with_name(_QUANT)
    return FoundConfig(_file_name(path, config), str(path), config, _read_json(quant) if quant.is_file() else None)


def _file_name(path: Path, config: Mapping[str, object]) -> str:
    """The best name for a config on disk: its own Hub id, that of the cache it lies in, its folder's or its own."""
    stated = config.get("_name_or_path")
    if isinstance(stated, str) and _HUB_ID.fullmatch(stated) and not stated.startswith("models/"):
        return stated
    for part in reversed(path.absolute().parts[:-1]):
        cached = _HUB_CACHE.fullmatch(part)
        if cached:
            return f"{cached[1]}/{cached[2]}"
    return path.absolute().parent.name if path.name == _CONFIG else path.stem


def _read_json(path: Path) -> Mapping[str, object]:
    try:
        return parse_json(path.read_bytes(), str(path))
    except OSError as error:
        raise ModelConfigError(f"{path} cannot be read ({error.strerror}); check the path and its rights.") from error


def parse_json(raw: bytes, where: str) -> Mapping[str, object]:
    """A JSON object from bytes; bare Infinity and NaN and a byte-order mark are accepted, anything damaged is not."""
    try:
        # json reads Infinity and NaN (real files have them) and detects the encoding, BOM included.
        data = json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ModelConfigError(f"{where} is not readable JSON ({error}); fetch the file again.") from error
    if not isinstance(data, dict):
        raise ModelConfigError(f"{where} is not a JSON object; give a Hugging Face config.json.")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {twice!r} stands in it twice")
    return data


def _from_hub(model: str) -> FoundConfig:
    config = _fetch(model, _CONFIG)
    assert config is not None
    source = f"https://huggingface.co/{model}/blob/main/{_CONFIG}"
    # vLLM 0.24.0 transformers_utils/config.py opens the separate file only when config.json is silent.
    if config.get("quantization_config") is not None:
        return FoundConfig(model, source, config)
    try:
        return FoundConfig(model, source, config, _fetch(model, _QUANT))
    except ModelConfigError:
        warning = f"{_QUANT} could not be looked up; if the checkpoint has one, it may declare another KV dtype"
        return FoundConfig(model, source, config, None, (warning,))


def _fetch(model: str, file: str) -> Mapping[str, object] | None:
    """One JSON file of a Hub repository, from the cache where it is there; None when hf_quant_config.json is absent."""
    from huggingface_hub import errors, hf_hub_download, utils

    utils.disable_progress_bars()  # type: ignore[attr-defined]
    utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        path = Path(hf_hub_download(model, file, local_files_only=not _hub_answers()))
    except errors.GatedRepoError:
        _refuse(model, _GATED)
    except errors.RepositoryNotFoundError:
        _refuse(
            model, f"is not on the Hub, or private; check the name, set HF_TOKEN, or note that {_no_profile(model)}"
        )
    except errors.LocalEntryNotFoundError:
        _refuse(model, f"is neither a shipped profile nor in the Hub cache, and the Hub cannot be asked; {_OFFLINE}")
    except errors.EntryNotFoundError:
        if file == _QUANT:
            return None
        _refuse(model, f"has no {file} on the Hub; give a repository in the transformers format")
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        _refuse(model, f"could not be fetched from the Hub ({first.rstrip('.')}); {_OFFLINE}")
    return _read_json(path)


def _hub_answers() -> bool:
    """Whether the Hub's port can be reached; without it huggingface_hub retries for half a minute per file."""
    import os
    import socket
    from urllib.parse import urlsplit

    from huggingface_hub import constants

    if any(os.environ.get(name) for name in _PROXIES):
        return True
    place = urlsplit(constants.ENDPOINT)
    try:
        port = place.port or (80 if place.scheme == "http" else 443)
        with socket.create_connection((place.hostname or "", port), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def _refuse(model: str, reason: str) -> NoReturn:
    raise ModelConfigError(f"{model} {reason.rstrip('.')}.")
