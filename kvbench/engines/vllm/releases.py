"""The vLLM releases that are known, and the dated features that change what reaches storage.

Read in the wheels of every release listed; file names are relative to vllm/. 0.27.0 and 0.27.1 have the same offloading
code, and so do 0.25.0 and 0.25.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.errors import UsageError

RELEASES = (
    "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0",
    "0.33.0",
)  # fmt: skip
NEWEST = RELEASES[-1]


@dataclass(frozen=True, slots=True)
class Feature:
    """A change of behaviour: the first release that has it, and where to read it."""

    since: str
    source: str


FEATURES: dict[str, Feature] = {
    # A promotion in flight counts as a hit, so the scan of a windowed group stops once its window is found.
    "window-scan-stops": Feature("0.25.0", "kv_connector/v1/offloading/scheduler.py _sliding_window_lookup"),
    "hybrid-prefix-caching": Feature("0.26.0", "config/model.py is_prefix_caching_supported"),
    # Multi-group models may use decode-context parallelism; how that reaches storage was not established.
    "grouped-context-parallel": Feature("0.26.0", "v1/core/kv_cache_utils.py resolve_kv_cache_block_sizes"),
    "one-thread-per-job": Feature("0.27.0", "v1/kv_offload/tiering/fs/manager.py submit_load (PR #49152)"),
    "mla-stored-once": Feature("0.27.0", "kv_connector/v1/offloading/config.py replicated_layout"),
    "o-direct-fallback": Feature("0.27.0", "v1/kv_offload/tiering/fs: O_DIRECT probed at start (#49734)"),
    "hybrid-mla-128": Feature("0.27.0", "platforms/interface.py _align_hybrid_block_size"),
    "chunked-windows": Feature("0.28.0", "kv_connector/v1/offloading: ChunkedLocalAttentionSpec"),
    "mamba-align-by-default": Feature("0.28.0", "model_executor/models/config.py MambaModelConfig"),
    # A directory is shared between parallelisms only where the heads are really sharded.
    "sharded-heads-digest": Feature("0.28.0", "kv_connector/v1/offloading/config.py is_parallelism_agnostic"),
    "disk-backend": Feature("0.28.0", "v1/simple_kv_offload/disk_backend.py"),
    "packed-groups": Feature("0.29.0", "v1/core/kv_cache_utils.py _get_packed_kv_cache_groups"),
    "seeded-none-hash": Feature("0.29.0", "v1/core/kv_cache_utils.py resolve_none_hash_seed (#51875)"),
    "sparse-mla-stored-once": Feature("0.31.0", "kv_connector/v1/offloading/config.py kv_tp_replicas"),
    "common-block-size": Feature("0.31.0", "platforms/interface.py _preferred_block_size_for_backends"),
    "nvfp4-on-sm90": Feature("0.32.0", "v1/attention/backends/flashinfer.py _nvfp4_kv_on_fa2"),
    "delta-net-checkpoints": Feature("0.33.0", "model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py"),
}


@dataclass(frozen=True, slots=True)
class Release:
    """One release of vLLM."""

    version: str

    def has(self, feature: str) -> bool:
        """Whether the release has a feature of FEATURES."""
        return RELEASES.index(self.version) >= RELEASES.index(FEATURES[feature].since)


def find_release(version: str | None) -> Release:
    """The release that a version names, the newest known for None; UsageError with the known list for any other.

    ``0.27`` means its last patch.
    """
    if version is None:
        return Release(NEWEST)
    matching = [known for known in RELEASES if version in (known, known.rpartition(".")[0])]
    if not matching:
        raise UsageError(
            f"--engine-version {version!r} is not a vLLM release known here; known: {', '.join(RELEASES)}."
        )
    return Release(matching[-1])
