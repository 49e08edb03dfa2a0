"""Upstream's real triton backend and kernels on the CPU, through triton's interpreter.

`python -m kit.verify_on_cpu [CASE …]` (TRITON_INTERPRET=1) verifies a chain with the extend kernel
and with the decode kernel, eagerly and by way of the buffers that CUDA graphs read, and prints a
JSON line for each case, all of `CASES` or those of the given numbers: how far each is from
attention computed by torch in double precision. Only sizes and what the launch said are stood in
for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

CONTEXT = 96
POOL_ROWS = 6
KV_HEADS, HEADS = 2, 4
LAYER = 0


@dataclass(frozen=True)
class Case:
    """One verify: prefixes, drafts a request, and what the kernels specialise on."""

    seq_lens: tuple[int, ...]
    width: int
    dim: int = 16
    heads: int = HEADS
    cap: float = 0.0
    page: int = 1
    sinks: bool = False
    cores: int = 0
    padded: int = 0


CASES = (
    Case((1,), 1),
    Case((1, 5, 33), 2),
    Case((70, 1, 40), 3, dim=32, cores=4),
    Case((33, 2, 64, 7), 4, cap=5.0),
    Case((3, 47), 4, page=16, cores=8),
    Case((31, 32), 5, heads=KV_HEADS),
    Case((9, 50), 4, sinks=True),
    Case((40, 6), 4, padded=2, cores=2),
    # A draft past the context's end: the rows within it are right, and nothing is written beside.
    Case((CONTEXT - 2, CONTEXT - 3), 4),
)


class Setting:
    """A pool, its requests, and what the model asks one layer to attend to."""

    def __init__(self, case: Case) -> None:
        import torch
        from sglang.srt.mem_cache.kv_index_translator import KVIndexTranslator
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

        torch.manual_seed(7)
        self.case = case
        table = CONTEXT + 16  # as upstream's, a little wider than the context
        pages = torch.randperm(POOL_ROWS * table // case.page) + 1
        slots = pages[:, None] * case.page + torch.arange(case.page)
        self.req_to_token = slots.flatten().view(POOL_ROWS, table).to(torch.int32)
        self.pool = MHATokenToKVPool(
            size=POOL_ROWS * table + case.page, page_size=case.page, dtype=torch.float32,
            head_num=KV_HEADS, head_dim=case.dim, layer_num=1, device="cpu",
            enable_memory_saver=False, enable_alt_stream=False,
        )  # fmt: skip
        for buffer in (self.pool.k_buffer[LAYER], self.pool.v_buffer[LAYER]):
            buffer.normal_()
        self.translator = KVIndexTranslator(
            req_to_token=self.req_to_token, token_to_kv_pool_allocator=None,
            token_to_kv_pool=self.pool, page_size=case.page, device="cpu",
        )  # fmt: skip
        self.rows = torch.tensor([4, 1, 5, 2][: len(case.seq_lens)])
        self.seq_lens = torch.tensor(case.seq_lens)
        tokens = len(case.seq_lens) * case.width
        self.q = torch.randn(tokens, case.heads * case.dim)
        self.k, self.v = (torch.randn(tokens, KV_HEADS, case.dim) for _ in range(2))
        self.sinks = torch.randn(case.heads) if case.sinks else None
        self.written = torch.cat(
            [
                self.req_to_token[row, length : length + case.width]
                for row, length in zip(self.rows, case.seq_lens, strict=True)
            ]
        ).to(torch.int64)
        self.layer = _layer(case)

    def within(self) -> Any:
        """Which tokens lie within the context."""
        import torch

        steps = torch.arange(self.case.width)
        return ((self.seq_lens[:, None] + steps) < CONTEXT).flatten()

    def reference(self) -> Any:
        """Attention of every draft, computed in double precision from the written pool."""
        import torch

        case, group = self.case, self.case.heads // KV_HEADS
        keys = self.pool.k_buffer[LAYER].double()
        values = self.pool.v_buffer[LAYER].double()
        found = []
        for token, query in enumerate(self.q.double().view(-1, case.heads, case.dim)):
            request, step = divmod(token, case.width)
            seen = self.req_to_token[self.rows[request], : case.seq_lens[request] + step + 1].long()
            k, v = (one[seen].repeat_interleave(group, 1) for one in (keys, values))
            scores = torch.einsum("hd,nhd->hn", query, k) * self.layer.scaling
            if case.cap:
                scores = case.cap * torch.tanh(scores / case.cap)
            if self.sinks is not None:
                scores = torch.cat([scores, self.sinks.double()[:, None]], 1)
            weights = scores.softmax(1)[:, : len(seen)]
            found.append(torch.einsum("hn,nhd->hd", weights, v).flatten())
        return torch.stack(found)

    def backend(self, mode: str) -> Any:
        """Upstream's `TritonAttnBackend` of a target whose launch said `mode`."""
        from sglang.srt.layers.attention import triton_backend
        from sglang.srt.spec_hardening.verify_attention import rows

        case = self.case
        said = SimpleNamespace(
            speculative_num_draft_tokens=case.width, speculative_num_steps=case.width - 1,
            speculative_eagle_topk=1, speculative_verify_attention=mode,
        )  # fmt: skip
        kernel = SimpleNamespace(
            enable_lean_attention=None, triton_attention_num_kv_splits=4,
            triton_attention_split_tile_size=None,
        )  # fmt: skip
        doing = SimpleNamespace(
            kernel=kernel, dllm=SimpleNamespace(dllm_algorithm=None),
            deterministic=SimpleNamespace(enable_deterministic_inference=False),
        )  # fmt: skip
        ranks = SimpleNamespace(attn_tp_size=1, attn_dcp_size=1, attn_dcp_rank=0)
        plan = SimpleNamespace(chunked_prefill_size=256)
        for name, one in (("exec", doing), ("spec", said), ("parallel", ranks), ("schedule", plan)):
            setattr(triton_backend, f"get_{name}", lambda one=one: one)
        triton_backend.cuda_graph_fully_disabled = lambda: False
        triton_backend.check_cuda_graph_backend = lambda *_: False
        rows.get_spec = lambda: said  # type: ignore[attr-defined]
        made = triton_backend.TritonAttnBackend(_runner(self))
        made.device_core_count = case.cores
        return made

    def batch(self, padded: int = 0, known: bool = True) -> Any:
        """The target's verify of all requests; `padded` more are there to fill a graph."""
        import torch
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        case = self.case
        lens = torch.cat([self.seq_lens, torch.ones(padded, dtype=torch.int64)])
        masks = [
            torch.cat(
                [torch.ones(case.width, int(n)), torch.ones(case.width, case.width).tril()], 1
            )
            for n in lens
        ]
        spec = SimpleNamespace(
            custom_mask=torch.cat([mask.flatten() for mask in masks]).to(torch.bool),
            num_tokens_per_req=case.width,
        )
        return SimpleNamespace(
            forward_mode=ForwardMode.TARGET_VERIFY, batch_size=len(lens), seq_lens=lens,
            req_pool_indices=torch.cat([self.rows, torch.zeros(padded, dtype=torch.int64)]),
            seq_lens_sum=int(self.seq_lens.sum()) if known else None, spec_info=spec,
            kv_loc_plan=None, encoder_lens=None, out_cache_loc=self.written,
            out_cache_loc_is_physical=True, positions=None, mha_one_shot=False,
            attn_attend_prefix_cache=None, extend_seq_lens_cpu=None, _attn_output=None,
        )  # fmt: skip

    def attend(self, backend: Any, batch: Any) -> Any:
        import torch

        q, k, v = self.q, self.k, self.v
        if batch.batch_size > len(self.seq_lens):
            extra = (batch.batch_size - len(self.seq_lens)) * self.case.width
            q = torch.cat([q, torch.zeros(extra, q.shape[1])])
            k, v = (torch.cat([one, torch.zeros(extra, *one.shape[1:])]) for one in (k, v))
            batch.out_cache_loc = torch.cat([self.written, torch.zeros(extra, dtype=torch.int64)])
        found = backend.forward_extend(q, k, v, self.layer, batch, sinks=self.sinks)
        return found[: len(self.q)].clone()


def _layer(case: Case) -> Any:
    from sglang.srt.layers.radix_attention import RadixAttention

    return RadixAttention(
        case.heads, case.dim, case.dim**-0.5, KV_HEADS, layer_id=LAYER, logit_cap=case.cap
    )


def _runner(setting: Setting) -> Any:
    from sglang.srt.configs.model_config import AttentionArch

    case = setting.case
    model = SimpleNamespace(
        attention_arch=AttentionArch.MHA, hf_config=SimpleNamespace(architectures=[]),
        get_max_num_attention_heads=lambda: case.heads, get_num_kv_heads=lambda *_: KV_HEADS,
        qk_nope_head_dim=0, qk_rope_head_dim=0, kv_lora_rank=0, v_head_dim=case.dim,
        swa_v_head_dim=case.dim, context_len=CONTEXT, head_dim=case.dim, is_encoder_decoder=False,
    )  # fmt: skip
    no = SimpleNamespace(is_dspark=lambda: False)
    from sglang.srt.configs import hybrid_arch
    from sglang.srt.layers.attention import triton_backend

    for module in (hybrid_arch, triton_backend):
        module.mambaish_config = lambda _: None
    return SimpleNamespace(
        req_to_token_pool=SimpleNamespace(size=POOL_ROWS, req_to_token=setting.req_to_token),
        sliding_window_size=None, token_to_kv_pool=setting.pool, token_to_kv_pool_allocator=None,
        page_size=case.page, kv_index_translator=setting.translator, model_config=model,
        decode_num_tokens_per_req=lambda: case.width, is_draft_worker=False, spec_algorithm=no,
        device="cpu", gpu_id=0, kv_cache_dtype=setting.pool.dtype,
    )  # fmt: skip


def eagerly(setting: Setting, mode: str, known: bool = True) -> Any:
    backend, batch = setting.backend(mode), setting.batch(known=known)
    backend.init_forward_metadata(batch)
    _check_room(backend.forward_metadata)
    return setting.attend(backend, batch)


def by_graph(setting: Setting, mode: str) -> Any:
    """Metadata as captured with lengths of 1, then the buffers of a replay with the true ones."""
    import torch

    case, backend = setting.case, setting.backend(mode)
    padded = setting.batch(case.padded)
    requests = padded.batch_size
    backend.init_cuda_graph_state(requests, requests * case.width)
    capture = setting.batch(case.padded)
    capture.seq_lens = torch.ones(requests, dtype=torch.int64)
    capture.req_pool_indices = torch.zeros(requests, dtype=torch.int64)
    capture.spec_info.custom_mask = None
    if mode == "extend":
        capture.spec_info = padded.spec_info
    backend.init_forward_metadata_out_graph(capture, in_capture=True)
    captured = backend.forward_metadata
    backend.init_forward_metadata_out_graph(padded)
    _check_room(captured)
    assert backend.forward_metadata is captured
    return setting.attend(backend, padded)


def _check_room(metadata: Any) -> None:
    """The lists of slots end within their buffer: nothing was written beside it."""
    assert int(metadata.kv_indptr[-1]) <= len(metadata.kv_indices)


def planted(shift: int) -> Iterator[None]:
    """Lengths that are off by `shift`, for as long as the iterator stands."""
    from sglang.srt.spec_hardening.verify_attention import rows

    right = rows.lengths
    rows.lengths = lambda lens, *rest: right(lens + shift, *rest)
    yield
    rows.lengths = right


def distances(case: Case) -> dict[str, float]:
    """The largest difference from the reference, for each way to verify."""
    setting = Setting(case)
    outputs = {
        "extend": eagerly(setting, "extend"),
        "decode": eagerly(setting, "decode"),
        "decode, sum unknown": eagerly(setting, "auto", known=False),
        "decode by graph": by_graph(setting, "decode"),
    }
    for shift in (-1, 1):
        fault = planted(shift)
        next(fault)
        # With the sum unknown there is room for what is too much.
        outputs[f"shifted by {shift}"] = eagerly(setting, "decode", known=False)
        next(fault, None)
    wanted, within = setting.reference(), setting.within()
    return {
        name: float((found.double() - wanted)[within].abs().max().nan_to_num(nan=1e9))
        for name, found in outputs.items()
    }


def main(numbers: Sequence[str]) -> None:
    assert os.environ.get("TRITON_INTERPRET") == "1"
    for case in [CASES[int(number)] for number in numbers] or CASES:
        print(json.dumps({"case": asdict(case), "distances": distances(case)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
