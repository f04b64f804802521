"""vLLM's offloading specs on its CPU platform: everything is the engine's, only the copy over PCIe is one in memory.

The engine loads this module through the public ``spec_module_path``. Without a GPU, CPUOffloadingSpec.get_worker
refuses; here it gets a worker that copies between the KV cache and the same shared region.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class HostWorker(OffloadingWorker):
    """Moves blocks between the KV cache and the region; a job is over when it was submitted."""

    def __init__(self, caches, region, blocks_per_chunk: int) -> None:
        """Views of both sides, one for each tensor of the cache."""
        self._region, self._per_chunk = region, blocks_per_chunk
        self._refs = caches.group_data_refs
        self._cache = [item.tensor.view(torch.int8).reshape(-1, item.page_size_bytes) for item in caches.tensors]
        self._rows = [
            region.create_next_worker_view(item.page_size_bytes * blocks_per_chunk) for item in caches.tensors
        ]
        self._ended: list[TransferResult] = []

    def submit_store(self, job_id, src_spec, dst_spec) -> bool:
        """From the KV cache into the region."""
        return self._move(job_id, src_spec, dst_spec, into_region=True)

    def submit_load(self, job_id, src_spec, dst_spec) -> bool:
        """From the region into the KV cache."""
        return self._move(job_id, dst_spec, src_spec, into_region=False)

    def get_finished(self) -> list[TransferResult]:
        """What was moved since the last question."""
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids) -> None:
        """Nothing is ever in flight."""

    def shutdown(self) -> None:
        """Unmap the region and remove its file."""
        self._region.cleanup()

    def _move(self, job_id, blocks, chunks, *, into_region: bool) -> bool:
        began, moved = perf_counter(), 0
        for group, block, chunk, part in self._places(blocks, chunks):
            for ref in self._refs[group]:
                page = ref.page_size_bytes
                near = self._cache[ref.tensor_idx][block, :page]
                far = self._rows[ref.tensor_idx][chunk, part * page : (part + 1) * page]
                (far if into_region else near).copy_(near if into_region else far)
                moved += page
        self._ended.append(TransferResult(job_id, True, moved, perf_counter() - began))
        return True

    def _places(self, blocks, chunks) -> Iterator[tuple[int, int, int, int]]:
        """Group, block of the cache, row of the region and block within the row, for each block."""
        ids, rows = iter(blocks.block_ids.tolist()), chunks.block_ids.tolist()
        used = 0
        for group, (count, first) in enumerate(zip(blocks.group_sizes, blocks.block_indices, strict=True)):
            skipped = first % self._per_chunk
            for number in range(skipped, skipped + count):
                chunk, part = divmod(number, self._per_chunk)
                yield group, next(ids), rows[used + chunk], part
            used += -(-(skipped + count) // self._per_chunk) if count else 0


class _OnHost:
    """What both specs need on a platform without a GPU."""

    def _uses_shared_region(self) -> bool:
        return True

    def get_worker(self, kv_caches):
        """The worker with the same region that CPUOffloadingSpec.create_worker makes."""
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self.config.engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = HostWorker(kv_caches, region, self.blocks_per_chunk)
        return self._worker


class HostCPU(_OnHost, CPUOffloadingSpec):
    """CPUOffloadingSpec."""


class HostTiering(_OnHost, TieringOffloadingSpec):
    """TieringOffloadingSpec."""
