"""Asks vLLM's own Python for blocks, groups and file bytes, on a machine without a GPU. Started by geometry_oracle.py.

    python geometry_engine.py CASES.json

The engine's platform is told that it runs on a CUDA GPU, kernels are stubs, and models are built on the meta device, so
that specs, groups and offloading rows come from the engine's own code and no weight is ever allocated. One JSON line
for each case, in a process of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

Case = dict[str, Any]


def load(name: str) -> Any:
    """A module of the engine's environment, which this project's own does not have."""
    return importlib.import_module(name)


_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
_EXTENSIONS = (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm._qutlass_C",
    "vllm._flashmla_C",
    "vllm._flashmla_extension_C",
    "vllm.cumem_allocator",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)
_SUPPORT_QUESTIONS = (
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_group_gemm_supported",
    "cutlass_scaled_mm_supports_fp4",
    "cutlass_sparse_scaled_mm_supported",
    "scaled_fp4_supported",
)
_OUR_OPS = ("_C", "_moe_C", "_flash", "_vllm", "_qutlass")
_GPU_BYTES = 80 << 30
_CACHE_BYTES = 64 << 30
_CPU_BYTES = 64 << 30


class Anything:
    """Stands for any object: every attribute and every call gives another one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class KernelConfig:
    """What vLLM asks of a Triton configuration."""

    def __init__(self, kwargs: Any = None, num_stages: int = 1, num_warps: int = 4, **_: Any) -> None:
        self.kwargs, self.num_stages, self.num_warps = kwargs or {}, num_stages, num_warps


class _Torchvision(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        modes = dict.fromkeys(("BICUBIC", "BILINEAR", "NEAREST", "LANCZOS", "BOX", "HAMMING", "NEAREST_EXACT"), 0)
        made = type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls), **modes})
        setattr(self, name, made)
        return made


class _TorchvisionFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Torchvision(spec.name)

    def exec_module(self, module: Any) -> None:
        module.__version__ = "0.29.0"


def stub_kernels() -> Any:
    """Make compiled parts importable; the patched getter of missing operators comes back, not yet active."""
    os.environ.update(_ENVIRONMENT)
    sys.meta_path.insert(0, _TorchvisionFinder())
    sys.modules.update({name: types.ModuleType(name) for name in _EXTENSIONS})
    torch = load("torch")
    for question in _SUPPORT_QUESTIONS:
        setattr(torch.ops._C, question, lambda *_, **__: True)
    namespace = load("torch._ops")._OpNamespace
    original = namespace.__getattr__

    def getter(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except AttributeError:
            if self.name.startswith(_OUR_OPS) and not name.startswith("__"):
                return Anything()
            raise

    return mock.patch.object(namespace, "__getattr__", getter)


def pose_as_gpu(capability: tuple[int, int]) -> Any:
    """Make vLLM's platform a CUDA GPU of that capability; the platform comes back."""
    torch, platforms = load("torch"), load("vllm.platforms")
    version = load("vllm.platforms.interface").DeviceCapability
    answers: dict[str, Any] = {
        "get_device_capability": version(*capability),
        "get_device_name": "a GPU",
        "get_device_uuid": "none",
        "get_device_total_memory": _GPU_BYTES,
        "is_fully_connected": True,
        "device_count": 8,
        "is_pin_memory_available": False,
        "import_kernels": None,
        "num_compute_units": 132,
        "get_cuda_runtime_major": 13,
    }
    methods = {name: classmethod(_constant(value)) for name, value in answers.items()}
    platform = type("PosingCuda", (load("vllm.platforms.cuda").NonNvmlCudaPlatform,), methods)
    platforms._current_platform = platform()
    torch.version.cuda = "13.0"
    properties = types.SimpleNamespace(
        multi_processor_count=132, major=capability[0], minor=capability[1], name="a GPU", total_memory=_GPU_BYTES,
        shared_memory_per_block_optin=232448, max_threads_per_multi_processor=2048, warp_size=32,
    )  # fmt: skip
    torch.cuda.Stream = torch.cuda.Event = torch.cuda.current_stream = Anything
    torch.cuda.current_device = torch.accelerator.current_device_index = _constant(0)
    torch.cuda._lazy_init = torch.accelerator.empty_cache = torch.accelerator.synchronize = _constant(None)
    torch.cuda.get_device_properties = _constant(properties)
    torch.cuda.get_device_capability = _constant(capability)
    torch.cuda.mem_get_info = _constant((_GPU_BYTES, _GPU_BYTES))
    load("vllm.utils.import_utils").has_deep_gemm = _constant(True)
    load("vllm.triton_utils").triton.Config = KernelConfig
    return platform


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def fake_groups(case: Case, stage: int) -> None:
    """Put groups in place of torch.distributed's, as this rank of this pipeline stage sees them."""
    torch, state = load("torch"), load("vllm.distributed.parallel_state")
    tp, pp = case["tp"], case["pp"]
    sizes = {"_WORLD": (tp * pp, 0), "_TP": (tp, 0), "_PP": (pp, stage), "_DP": (1, 0), "_EP": (tp, 0), "_PCP": (1, 0),
             "_DCP": (case["dcp"], 0), "_EPLB": (1, 0), "_INNER_DP_WORLD": (tp * pp, 0)}  # fmt: skip
    for name, (size, rank) in sizes.items():
        if hasattr(state, name):
            setattr(state, name, _group(size, rank, torch.device("meta")))
    if hasattr(state, "_NODE_COUNT"):
        state._NODE_COUNT = 1


def _group(size: int, rank: int, device: Any) -> Any:
    process = Anything()
    process.size, process.rank = (lambda: size), (lambda: rank)  # type: ignore[attr-defined]
    group = Anything()
    vars(group).update(
        world_size=size, rank_in_group=rank, rank=rank, local_rank=rank, ranks=list(range(size)),
        is_first_rank=rank == 0, is_last_rank=rank == size - 1, device=device, cpu_group=process, device_group=process,
        first_rank=0, last_rank=size - 1, use_device_communicator=False, device_communicator=None, mq_broadcaster=None,
    )  # fmt: skip
    return group


def engine_config(case: Case) -> Any:
    """The engine's configuration for a case, offloading to files included."""
    folder = Path(tempfile.mkdtemp(prefix="kvbench-config-"))
    (folder / "config.json").write_text(json.dumps(case["config"]))
    tier = {"type": "fs", "root_dir": "/nowhere"}
    extra = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": _CPU_BYTES, "secondary_tiers": [tier]}
    if case["file_tokens"]:
        extra["block_size"] = case["file_tokens"]
    transfer = load("vllm.config").KVTransferConfig(
        kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=extra
    )
    switches: dict[str, Any] = {}
    if case["prefix_caching"]:
        switches["enable_prefix_caching"] = True
    if not case["hybrid_manager"]:
        switches["disable_hybrid_kv_cache_manager"] = True
    load("vllm.model_executor.models.registry")._run_in_subprocess = lambda function: function()
    arguments = load("vllm.engine.arg_utils").EngineArgs(
        model=str(folder), skip_tokenizer_init=True, load_format="dummy", tensor_parallel_size=case["tp"],
        pipeline_parallel_size=case["pp"], decode_context_parallel_size=case["dcp"], kv_cache_dtype=case["kv_dtype"],
        enforce_eager=True, gpu_memory_utilization=0.9, distributed_executor_backend="mp", kv_transfer_config=transfer,
        **switches,
    )  # fmt: skip
    return arguments.create_engine_config()


@contextlib.contextmanager
def on_meta(config: Any, missing_operators: Any) -> Iterator[None]:
    """The context in which vLLM builds a model without memory."""
    torch = load("torch")

    def to_meta(self: Any, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if device is not None and (isinstance(device, int) or str(device).startswith("cuda")):
            kwargs["device"] = "meta"
        return function(*args, **kwargs)

    mode = type("ToMeta", (load("torch.overrides").TorchFunctionMode,), {"__torch_function__": to_meta})
    current = load("vllm.config").set_current_vllm_config
    default = load("vllm.utils.torch_utils").set_default_torch_dtype
    dtype = config.model_config.dtype
    with missing_operators, current(config, check_compile=False), default(dtype), torch.device("meta"), mode():
        yield


def specs_of(case: Case, stage: int, platform: Any, missing_operators: Any) -> tuple[Any, dict[str, Any]]:
    """The configuration and the cache specs of one pipeline stage, after the engine settled its block size."""
    torch, config = load("torch"), engine_config(case)
    config.parallel_config.rank = stage * case["tp"]
    fake_groups(case, stage)
    load("vllm.model_executor.model_loader.utils").get_model_architecture(config.model_config)
    for module in ("layers.fused_moe", "layers.mamba.mamba_mixer2", "layers.quantization"):
        load(f"vllm.model_executor.{module}")
    load("vllm._custom_ops")
    load("vllm.v1.worker.workspace").init_workspace_manager(torch.device("meta"))
    with on_meta(config, missing_operators):
        load("vllm.model_executor.model_loader.utils").initialize_model(vllm_config=config)
    platform.update_block_size_for_backend(config)
    return config, load("vllm.v1.worker.gpu.attn_utils").get_kv_cache_spec(config)


def answer(case: Case, platform: Any, missing_operators: Any) -> dict[str, Any]:
    """Block tokens, bytes of a block on a rank of each stage, groups, and file bytes or the engine's refusal."""
    stages = [specs_of(case, stage, platform, missing_operators) for stage in range(case["pp"])]
    config, specs = stages[0][0], [spec for _, spec in stages]
    caches = _cache_configs(stages, specs)
    found = {
        "block_tokens": config.cache_config.block_size,
        "rank_block_bytes": [_block_bytes(cache) for cache in caches],
        "groups": [_group_text(group) for group in caches[0].kv_cache_groups],
    }
    try:
        return {**found, "file_bytes": _file_bytes(config, caches)}
    except Exception as error:
        return {**found, "file_bytes": None, "refused": f"{type(error).__name__}: {error}"[:200]}


def _cache_configs(stages: Any, specs: Any) -> Any:
    available = [_CACHE_BYTES] * len(specs)
    try:
        planning = load("vllm.v1.core.kv_cache_planning")
    except ModuleNotFoundError:
        planning = load("vllm.v1.core.kv_cache_utils")
    with mock.patch.object(planning, "_check_enough_kv_cache_memory", _constant(None)):
        if not hasattr(planning, "get_global_kv_cache_groups"):
            return planning.get_kv_cache_configs(stages[0][0], specs, available)
        layouts = load("vllm.v1.kv_cache_layout").KVCacheLayout
        every = [spec for stage in specs for spec in stage.values()]
        resolve = load("vllm.v1.attention.backends.utils").resolve_kv_cache_layout
        layout = resolve(stages[0][0], [[one.name for one in layouts]], every)
        for config, _ in stages:
            config.cache_config.kv_cache_layout = layout.name
        groups = planning.get_global_kv_cache_groups(stages[0][0], specs)
        return planning.get_kv_cache_configs(stages[0][0], specs, available, groups)


def _block_bytes(cache: Any) -> int:
    tensors = cache.kv_cache_tensors
    shared = hasattr(tensors[0], "layers") or any(tensor.block_stride for tensor in tensors)
    return int((tensors[0].size if shared else sum(tensor.size for tensor in tensors)) // cache.num_blocks)


def _group_text(group: Any) -> str:
    return f"{len(group.layer_names)}x{type(group.kv_cache_spec).__name__}@{group.kv_cache_spec.block_size}"


def _file_bytes(config: Any, caches: Any) -> int:
    scheduler = load("vllm.v1.core.kv_cache_utils").generate_scheduler_kv_cache_config(caches)
    factory = load("vllm.v1.kv_offload.factory").OffloadingSpecFactory
    try:
        translate = load("vllm.distributed.kv_transfer.kv_connector.v1.offloading.config").build_offloading_config
    except ModuleNotFoundError:
        spec = factory.create_spec(config, scheduler)
        load("vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler").SchedulerOffloadConfig.from_spec(spec)
        return int(spec.kv_bytes_per_offloaded_block)
    return int(factory.create_spec(translate(config, scheduler)).kv_bytes_per_chunk)


def in_its_own_process(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``work`` returns in a forked child, or its error: the engine keeps state that a second case would see."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            found = work()
        except BaseException as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    found = json.loads(text) if text else {"error": "the engine died"}
    assert isinstance(found, dict)
    return found


def main(path: Path) -> None:
    """Answer every case of the file, in order."""
    missing_operators = stub_kernels()
    capabilities = {"sm90": (9, 0), "sm100": (10, 0)}
    platform = None
    for case in json.loads(path.read_text()):
        if platform is None:
            platform = pose_as_gpu(capabilities[case["gpu_arch"]])
            for module in ("engine.arg_utils", "model_executor.model_loader.utils", "v1.core.kv_cache_utils"):
                load(f"vllm.{module}")
        found = in_its_own_process(lambda case=case, on=platform: answer(case, on, missing_operators))  # type: ignore[misc]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
