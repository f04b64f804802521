"""Every key that a ``--kv-transfer-config`` may hold, by the place where it stands, as the engines' sources read them.

vLLM: config/kv_transfer.py, v1/kv_offload/ and kv_connector/v1/ of 0.24.0 to 0.33.0; what came or went between them is
dated by FEATURES. LMCache: lmcache/v1/config.py and integration/vllm/ of 0.5.6. llm-d: llmd_fs_backend/spec.py and its
README (for vLLM 0.20).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kvbench.engines.vllm.releases import Release

Kind = Literal[
    "any", "text", "path", "whole", "count", "number", "real", "flag", "switch", "mapping", "tiers", "texts", "wholes",
    "configs",
]  # fmt: skip
Unknown = Literal["refused", "ignored", "warned"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its ``kind`` of value, its default in words, and the features with which it came and went."""

    name: str
    kind: Kind
    default: str = ""
    least: int | None = None
    choices: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    required: bool = False
    secret: bool = False

    def known_in(self, release: Release) -> bool:
        """Whether the release reads the key."""
        came = self.since is None or release.has(self.since)
        return came and not (self.until is not None and release.has(self.until))


@dataclass(frozen=True, slots=True)
class Scope:
    """A place in the configuration: its keys, and what the engine does with one that it does not know."""

    name: str
    unknown: Unknown
    keys: Mapping[str, Key]


def _scope(name: str, unknown: Unknown, *keys: Key) -> Scope:
    return Scope(name, unknown, MappingProxyType({key.name: key for key in keys}))


ROLES = ("kv_producer", "kv_consumer", "kv_both")

TRANSFER = _scope(
    "the transfer configuration",
    # @config makes a pydantic dataclass with extra="forbid" (config/utils.py).
    "refused",
    Key("kv_connector", "text", required=True),
    Key("kv_role", "text", choices=ROLES, required=True),
    Key("kv_connector_extra_config", "mapping", "{}"),
    Key("kv_connector_module_path", "text"),
    Key("engine_id", "text", "a random id"),
    Key("kv_buffer_device", "text", "the platform's device"),
    Key("kv_port", "count", "14579", least=0),
    Key("enable_permute_local_kv", "switch", "false"),
    Key("kv_load_failure_policy", "text", "fail", choices=("recompute", "fail")),
    Key("kv_buffer_size", "number", "1e9", until="short-transfer-config"),
    Key("kv_rank", "count", until="short-transfer-config"),
    Key("kv_parallel_size", "count", "1", until="short-transfer-config"),
    Key("kv_ip", "text", "127.0.0.1", until="short-transfer-config"),
)

_SPEC = (
    Key("spec_name", "text", "CPUOffloadingSpec"),
    Key("spec_module_path", "text"),
    Key("offload_prompt_only", "flag", "true"),
    Key("self_describing_kv_events", "flag", "false"),
    Key("canonical_layout", "flag", "false", since="canonical-layout"),
    Key("enable_cross_layers_blocks", "switch", "false", until="no-cross-layers-key"),
    Key("sync_load_budget_bytes", "count", "0", least=0, since="sync-load-budget"),
)

OFFLOADING = _scope(
    "kv_connector_extra_config of OffloadingConnector",
    "ignored",
    *_SPEC,
    Key("cpu_bytes_to_use", "count", least=1, required=True),
    Key("block_size", "count", "the GPU block", least=1),
    Key("blocks_per_chunk", "count", "1", least=1, since="blocks-per-chunk"),
    Key("eviction_policy", "text", "lru"),
    Key("cache_policy_module_path", "text", since="cache-policy-path"),
    Key("store_threshold", "count", "0", least=0),
    Key("max_tracker_size", "count", "64000"),
    Key("secondary_tiers", "tiers", "[]"),
    Key("backpressure", "mapping", since="backpressure"),
    Key("tier_poll_interval_s", "number", "0.001", since="tier-polling"),
)
BUILT_IN_SPECS = ("CPUOffloadingSpec", "TieringOffloadingSpec")
# What only TieringOffloadingSpec reads.
TIERING_ONLY = ("secondary_tiers", "backpressure", "tier_poll_interval_s")
EVICTION_POLICIES = ("lru", "arc")

LLMD_SPEC = "SharedStorageOffloadingSpec"
LLMD_MODULE = "llmd_fs_backend.spec"
LLMD = _scope(
    f"kv_connector_extra_config of llm-d's {LLMD_SPEC}",
    "ignored",
    *_SPEC,
    Key("shared_storage_path", "path", "/tmp/shared-kv"),
    Key("block_size", "count", "256", least=1),
    Key("threads_per_gpu", "count", "64", least=1),
    Key("max_staging_memory_gb", "count", least=1),
    Key("read_preferring_ratio", "number"),
    Key("max_write_queued_seconds", "number", "10"),
    Key("gds_mode", "text", "disabled"),
    Key("backend", "text", "POSIX", choices=("POSIX", "OBJ")),
)

# SimpleCPUOffloadConnector (kv_connector/v1/simple_cpu_offload_connector.py).
DISK_ONLY = ("disk_path", "disk_capacity_bytes", "disk_buffer_slots", "use_page_cache")
SIMPLE = _scope(
    "kv_connector_extra_config of SimpleCPUOffloadConnector",
    "ignored",
    Key("cpu_bytes_to_use", "count", "8 GiB", least=1),
    Key("cpu_bytes_to_use_per_rank", "count", least=1),
    Key("num_cpu_blocks", "whole", least=1, since="sync-load-budget"),
    Key("lazy_offload", "flag", "false"),
    Key("kv_offload_backend", "text", "cpu", choices=("cpu", "disk"), since="disk-backend"),
    Key("disk_path", "path", since="disk-backend"),
    Key("disk_capacity_bytes", "count", "100 GiB", least=1, since="disk-backend"),
    Key("disk_buffer_slots", "count", "2", since="disk-backend"),
    Key("use_page_cache", "flag", "false", since="disk-backend"),
)

MULTI = _scope("kv_connector_extra_config of MultiConnector", "ignored", Key("connectors", "configs", required=True))

_EVENTS = (
    Key("enable_kv_events", "flag", "false", since="tier-events"),
    Key("locality", "text", choices=("LOCAL", "REMOTE"), since="tier-events"),
)
_TIER = (
    Key("type", "text", required=True),
    Key("module_path", "text", since="tier-module-path"),
    Key("backpressure", "mapping", since="backpressure"),
)

FS = _scope(
    "a secondary tier of type fs",
    # The tier's constructor takes its keys by name: a TypeError for any other.
    "refused",
    *_TIER,
    *_EVENTS,
    Key("root_dir", "path", required=True),
    Key("n_read_threads", "whole", "16", least=0),
    Key("n_write_threads", "whole", "16", least=0),
)
OBJ = _scope(
    "a secondary tier of type obj",
    "refused",
    *_TIER,
    *_EVENTS,
    Key("store_config", "mapping", required=True),
    Key("prefix", "text", '""'),
    Key("io_threads", "whole", "4", least=1),
)
P2P = _scope(
    "a secondary tier of type p2p",
    # P2PSecondaryTierManager.__init__ takes **kwargs.
    "ignored",
    *_TIER,
    Key("host", "text", "VLLM_P2P_SIDE_CHANNEL_HOST, localhost"),
    Key("port", "count", "VLLM_P2P_SIDE_CHANNEL_PORT, 5710", least=1),
    Key("backends", "texts", '["UCX"]'),
    Key("num_threads", "whole", "4", least=1),
    Key("unbound_store_timeout_s", "number", "60", since="p2p-store-timeout"),
)
KVCR = _scope(
    "a secondary tier of type kvcr",
    "refused",
    *_TIER,
    Key("router_capabilities", "texts", required=True),
    Key("control_host", "text", "0.0.0.0"),
    Key("control_ports", "wholes", required=True),
    Key("control_advertise_host", "text", "the host's name"),
    Key("eager_ctrl_connect", "flag", "true"),
    Key("opportunistic_query", "flag", "true"),
    Key("enable_telemetry", "flag", "false"),
    Key("operation_timeout_ms", "whole", "1000"),
    Key("abandon_timeout_ms", "whole", "5000"),
    Key("metadata_retry_interval_ms", "whole", "100"),
    Key("secondary_g2_slots", "whole", "0", least=0),
    Key("kvcr_service_socket_path", "path"),
    Key("compatibility_digest", "text"),
    Key("policy", "text"),
    Key("g3", "mapping"),
    Key("local_dram_backend", "text", "UCX"),
    Key("remote_fw_dram_backend", "text", "UCX"),
)
EXAMPLE = _scope("a secondary tier of type example", "refused", *_TIER, Key("custom_param", "whole", "0"))

TIERS: Mapping[str, Scope] = MappingProxyType({"fs": FS, "obj": OBJ, "p2p": P2P, "kvcr": KVCR, "example": EXAMPLE})
TIER_SINCE: Mapping[str, str] = MappingProxyType({"p2p": "p2p-tier", "kvcr": "kvcr-tier"})

STORE = _scope(
    "store_config",
    "refused",
    Key("bucket", "text", required=True),
    Key("endpoint_override", "text", required=True),
    Key("access_key", "text", '""', secret=True),
    Key("secret_key", "text", '""', secret=True),
    Key("session_token", "text", '""', since="object-credential-chain", secret=True),
    Key("region", "text", '""', since="object-credential-chain"),
    Key("scheme", "text", "http", choices=("http", "https")),
    Key("ca_bundle", "path", '""'),
)
# v1/kv_offload/tiering/backpressure.py EMABackpressureDetector; another detector has keys of its own.
DETECTOR = "EMABackpressureDetector"
BACKPRESSURE = _scope(
    f"backpressure with {DETECTOR}",
    "refused",
    Key("backpressure_cls", "text", required=True),
    Key("policy_cls", "text", "ThrottledDropPolicy"),
    Key("high_water_s", "real", "0.010, 0.050 over a network"),
    Key("low_water_s", "real", "0.002, 0.010 over a network"),
    Key("alpha", "real", "0.15"),
    Key("warmup_completions", "whole", "10", least=0),
    Key("decay_half_life_s", "real", "2"),
    Key("cooldown_s", "real", "1"),
)

# LMCache reads "lmcache.<name>" and its own converter turns text into the type; what it cannot convert it leaves out.
_LMCACHE_TYPED = (
    Key("lmcache.chunk_size", "count", "256", least=1),
    Key("lmcache.local_cpu", "switch", "true"),
    Key("lmcache.max_local_cpu_size", "number", "5 (GiB)"),
    Key("lmcache.local_disk", "text"),
    Key("lmcache.max_local_disk_size", "number", "0 (GiB)"),
    Key("lmcache.remote_url", "text"),
    Key("lmcache.save_unfull_chunk", "switch", "false"),
    Key("lmcache.save_decode_cache", "switch", "false"),
    Key("lmcache.use_layerwise", "switch", "false"),
    Key("lmcache.enable_async_loading", "switch", "false"),
    Key("lmcache.extra_config", "mapping"),
)
_LMCACHE_NAMES = (
    "local_cpu_use_hugepages", "reserve_local_cpu_size", "local_disk_path_sharding", "remote_serde",
    "pre_caching_hash_algorithm", "enable_blending", "blend_recompute_ratios", "blend_thresholds",
    "blend_check_layers", "blend_min_tokens", "blend_special_str", "retrieve_locations", "store_location",
    "enable_p2p", "p2p_host", "p2p_init_ports", "p2p_lookup_ports", "mp_host", "mp_port", "enable_controller",
    "lmcache_instance_id", "controller_pull_url", "controller_reply_url", "lmcache_worker_ports",
    "lmcache_worker_ids", "lmcache_worker_heartbeat_delay_time", "lmcache_worker_heartbeat_time", "enable_pd",
    "pd_role", "pd_buffer_size", "pd_buffer_device", "pd_peer_host", "pd_peer_init_port", "pd_peer_alloc_port",
    "pd_peer_query_port", "pd_proxy_host", "pd_proxy_port", "pd_allocation_timeout_sec",
    "pd_shutdown_timeout_sec", "pd_condition_poll_interval_sec", "pd_max_prefill_len", "pd_backend_mode",
    "pd_skip_proxy_notification", "pd_bidirectional", "transfer_channel", "nixl_backends", "nixl_buffer_size",
    "nixl_buffer_device", "gds_path", "gds_path_sharding", "gds_buffer_size", "maru_path", "maru_pool_size",
    "use_gds", "gds_backend", "audit_actual_remote_url", "internal_api_server_host", "blocking_timeout_secs",
    "external_lookup_client", "py_enable_gc", "cache_policy", "numa_mode", "internal_api_server_enabled",
    "internal_api_server_port_start", "priority_limit", "internal_api_server_include_index_list",
    "internal_api_server_socket_path_prefix", "runtime_plugin_locations", "storage_plugins",
    "remote_storage_plugins", "lookup_timeout_ms", "min_retrieve_tokens", "hit_miss_ratio",
    "lookup_server_worker_ids", "enable_scheduler_bypass_lookup", "script_allowed_imports",
    "run_script_api_enabled", "enable_lazy_memory_allocator", "lazy_memory_initial_ratio",
    "lazy_memory_expand_trigger_ratio", "lazy_memory_step_ratio", "lazy_memory_safe_size",
    "enable_chunk_statistics", "chunk_statistics_auto_start_statistics",
    "chunk_statistics_auto_exit_timeout_hours", "chunk_statistics_auto_exit_target_unique_chunks",
    "chunk_statistics_strategy", "enable_kv_events", "use_gpu_connector_v3", "pin_timeout_sec",
    "pin_check_interval_sec", "remote_config_url", "app_id", "enable_hidden_state_cache",
    "max_hidden_state_cpu_size", "hidden_state_layers", "hidden_states_retrieve_mode", "max_tokens_per_load",
)  # fmt: skip
LMCACHE = _scope(
    "kv_connector_extra_config of LMCacheConnectorV1",
    "warned",
    *_LMCACHE_TYPED,
    *(Key(f"lmcache.{name}", "any") for name in _LMCACHE_NAMES),
    Key("use_native", "flag", "false"),
    Key("use_layerwise", "flag", "false"),
    Key("discard_partial_chunks", "flag", "false"),
    Key("skip_last_n_tokens", "whole", "0", least=0),
)
LMCACHE_MP = _scope(
    "kv_connector_extra_config of LMCacheMPConnector",
    "ignored",
    Key("lmcache.mp.host", "text", "tcp://localhost"),
    Key("lmcache.mp.port", "count", "5555", least=1),
    Key("lmcache.mp.mq_timeout", "number", "300"),
    Key("lmcache.mp.heartbeat_interval", "number", "10"),
    Key("lmcache.mp.server_urls", "any"),
    Key("lmcache.mp.autostart", "any"),
    Key("lmcache.mp.eager_prefetch", "flag", "false"),
    Key("lmcache.mp.save_decode_cache", "flag", "false"),
    Key("lmcache.mp.transfer_intermediate_tensors", "any"),
    Key("lmcache.mp.lazy_offload", "any"),
    Key("lmcache.mp.lazy_offload_policy", "any"),
    Key("lmcache.mp.lazy_offload_select_count", "any"),
    Key("lmcache.mp.lazy_offload_threshold", "any"),
)

EXTRA: Mapping[str, Scope] = MappingProxyType(
    {
        "OffloadingConnector": OFFLOADING,
        "SimpleCPUOffloadConnector": SIMPLE,
        "MultiConnector": MULTI,
        "LMCacheConnectorV1": LMCACHE,
        "LMCacheMPConnector": LMCACHE_MP,
    }
)
# Registered in vLLM, with keys of their own that are not listed here (kv_connector/factory.py).
OTHER_CONNECTORS = (
    "DecodeBenchConnector", "ExampleConnector", "ExampleHiddenStatesConnector", "FlexKVConnectorV1",
    "HF3FSKVConnector", "HiSparseConnector", "MoRIIOConnector", "MooncakeConnector", "MooncakeStoreConnector",
    "NixlConnector", "NixlPullConnector", "NixlPushConnector",
)  # fmt: skip
SCOPES = (TRANSFER, OFFLOADING, LLMD, SIMPLE, MULTI, *TIERS.values(), STORE, BACKPRESSURE, LMCACHE, LMCACHE_MP)
