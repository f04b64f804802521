"""The vLLM releases that are known, and the dated features that change what reaches storage or how it is configured.

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
    "p2p-tier": Feature("0.25.0", "v1/kv_offload/tiering/p2p/manager.py"),
    "hybrid-prefix-caching": Feature("0.26.0", "config/model.py is_prefix_caching_supported"),
    # Multi-group models may use decode-context parallelism; how that reaches storage was not established.
    "grouped-context-parallel": Feature("0.26.0", "v1/core/kv_cache_utils.py resolve_kv_cache_block_sizes"),
    "blocks-per-chunk": Feature("0.26.0", "kv_connector/v1/offloading/config.py build_offloading_config"),
    "tier-events": Feature("0.26.0", "v1/kv_offload/tiering/fs/manager.py enable_kv_events, locality"),
    # Up to 0.25 the keys had to stand in the configuration itself.
    "object-credential-chain": Feature("0.26.0", "v1/kv_offload/tiering/obj/config.py ObjStoreConfig"),
    "cache-policy-path": Feature("0.27.0", "v1/kv_offload/cpu/spec.py cache_policy_module_path"),
    "tiering-describes-events": Feature("0.27.0", "v1/kv_offload/tiering/spec.py __init__"),
    "one-thread-per-job": Feature("0.27.0", "v1/kv_offload/tiering/fs/manager.py submit_load (PR #49152)"),
    "mla-stored-once": Feature("0.27.0", "kv_connector/v1/offloading/config.py replicated_layout"),
    "o-direct-fallback": Feature("0.27.0", "v1/kv_offload/tiering/fs: O_DIRECT probed at start (#49734)"),
    "hybrid-mla-128": Feature("0.27.0", "platforms/interface.py _align_hybrid_block_size"),
    "chunked-windows": Feature("0.28.0", "kv_connector/v1/offloading: ChunkedLocalAttentionSpec"),
    "mamba-align-by-default": Feature("0.28.0", "model_executor/models/config.py MambaModelConfig"),
    # A directory is shared between parallelisms only where the heads are really sharded.
    "sharded-heads-digest": Feature("0.28.0", "kv_connector/v1/offloading/config.py is_parallelism_agnostic"),
    "disk-backend": Feature("0.28.0", "v1/simple_kv_offload/disk_backend.py"),
    "canonical-layout": Feature("0.28.0", "kv_connector/v1/offloading/config.py build_offloading_config"),
    "tier-module-path": Feature("0.28.0", "v1/kv_offload/tiering/factory.py get_tier_class"),
    "packed-groups": Feature("0.29.0", "v1/core/kv_cache_utils.py _get_packed_kv_cache_groups"),
    # Of a window only the blocks that the same prompt needs again are stored: a retention interval of 0 by default.
    "newest-window-only": Feature("0.30.0", "config/cache.py prefix_cache_retention_interval"),
    "seeded-none-hash": Feature("0.29.0", "v1/core/kv_cache_utils.py resolve_none_hash_seed (#51875)"),
    # With it the key enable_cross_layers_blocks went (v1/core/kv_cache_utils.py up to 0.28).
    "no-cross-layers-key": Feature("0.29.0", "v1/core/kv_cache_utils.py"),
    "kvcr-tier": Feature("0.30.0", "v1/kv_offload/tiering/kvcr/manager.py"),
    "p2p-store-timeout": Feature("0.30.0", "v1/kv_offload/tiering/p2p/manager.py unbound_store_timeout_s"),
    "backpressure": Feature("0.31.0", "v1/kv_offload/tiering/factory.py create_secondary_tier"),
    "sparse-mla-stored-once": Feature("0.31.0", "kv_connector/v1/offloading/config.py kv_tp_replicas"),
    "common-block-size": Feature("0.31.0", "platforms/interface.py _preferred_block_size_for_backends"),
    "nvfp4-on-sm90": Feature("0.32.0", "v1/attention/backends/flashinfer.py _nvfp4_kv_on_fa2"),
    # kv_buffer_size, kv_rank, kv_parallel_size and kv_ip went.
    "short-transfer-config": Feature("0.32.0", "config/kv_transfer.py KVTransferConfig"),
    "tier-polling": Feature("0.33.0", "v1/kv_offload/tiering/spec.py tier_poll_interval_s"),
    "sync-load-budget": Feature("0.33.0", "kv_connector/v1/offloading/scheduler.py sync_load_budget_bytes"),
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
