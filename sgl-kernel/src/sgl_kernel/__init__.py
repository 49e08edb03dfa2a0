"""CPU operators behind the import name `sgl_kernel`, for EAGLE-3 decoding on hosts without CUDA.

Functions that SGLang imports by name are plain functions here; those it calls as
`torch.ops.sgl_kernel.<name>` are registered with torch by `sgl_kernel.registry` when the package is
imported. Everything else of the CUDA package is refused by name (`sgl_kernel.offer`), and the
package itself refuses to load on a host with CUDA (`sgl_kernel.host`).
"""

from typing import NoReturn

from sgl_kernel import host, offer

_reason = host.import_refusal()
if _reason is not None:
    raise ImportError(_reason)

from sgl_kernel import registry  # noqa: E402
from sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu  # noqa: E402
from sgl_kernel.cache_locs import (  # noqa: E402
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    fill_accept_out_cache_loc_cpu,
)
from sgl_kernel.hashing import murmur_hash32_cpu  # noqa: E402
from sgl_kernel.kv_copy import copy_all_layer_kv_cache_cpu  # noqa: E402
from sgl_kernel.tokens import fill_bonus_tokens_cpu, rotate_input_ids_cpu  # noqa: E402
from sgl_kernel.tree import build_tree_kernel_efficient_cpu  # noqa: E402
from sgl_kernel.verify import verify_tree_greedy_cpu  # noqa: E402

__version__ = "0.4.10+cpu"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "murmur_hash32_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

registry.register()
offer.install()


def __getattr__(name: str) -> NoReturn:
    raise offer.missing_attribute(name)
