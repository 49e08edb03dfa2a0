"""What a launch asks for that bears on communication; filled from its arguments by `launch`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}


@dataclass(frozen=True)
class Settings:
    """One launch.

    architecture: the target's, or None if unknown. hidden_size: elements of a row.
    max_bs: the largest captured batch, in requests. num_draft_tokens: rows of a request in verify,
    1 without speculation. chunked_prefill_size: rows of a prefill, None if unlimited.
    fusion_backend: --flashinfer-allreduce-fusion-backend; None is not given, or off where SGLang
    has resolved the launch already (`resolved`).
    second_stream: what would reduce on a second stream at once ("two-batch overlap"), else "".
    """

    tp_size: int = 1
    nnodes: int = 1
    device: str = "cuda"
    architecture: str | None = None
    hidden_size: int = 7168
    dtype: str = "bfloat16"
    max_bs: int = 128
    num_draft_tokens: int = 1
    chunked_prefill_size: int | None = 8192
    graphs: bool = True
    attention_dp: bool = False
    deterministic: bool = False
    second_stream: str = ""
    fusion_backend: str | None = None
    resolved: bool = False
    enforce_disable_fusion: bool = False
    disable_custom_all_reduce: bool = False
    enable_nccl_nvls: bool = False
    enable_symm_mem: bool = False
    enable_torch_symm_mem: bool = False
    enable_mscclpp: bool = False
    enable_p2p_check: bool = False

    @property
    def row_bytes(self) -> int:
        return self.hidden_size * BYTES.get(self.dtype, 2)

    @property
    def widest_verify_rows(self) -> int:
        """Rows of the widest decode reduction: each request verifies all of its draft tokens."""
        return self.max_bs * self.num_draft_tokens

    def messages(self) -> list[tuple[str, int]]:
        """(what, rows) of the reductions worth a line in the table, narrow ones first."""
        named = [("draft, 1 request", 1)] if self.num_draft_tokens > 1 else []
        verb = "verify" if self.num_draft_tokens > 1 else "decode"
        for requests in sorted({1, 8, 32, self.max_bs}):
            if requests <= self.max_bs:
                plural = "" if requests == 1 else "s"
                rows = requests * self.num_draft_tokens
                named.append((f"{verb}, {requests} request{plural}", rows))
        if self.chunked_prefill_size and self.chunked_prefill_size > self.widest_verify_rows:
            named.append(("prefill chunk", self.chunked_prefill_size))
        return named

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
