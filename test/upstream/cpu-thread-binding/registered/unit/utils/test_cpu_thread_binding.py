"""Unit tests for CPU ranks that outnumber NUMA nodes: no server, no model loading."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

from sglang.srt.server_args import ServerArgs
from sglang.srt.utils import numa_utils
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

_NODES = ["0,1,2,3", "4,5,6,7"]
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}


class TestCpuThreadBinding(CustomTestCase):
    def setUp(self):
        environment = {
            key: value
            for key, value in os.environ.items()
            if key != "SGLANG_CPU_OMP_THREADS_BIND"
        }
        for change in (
            patch.dict(os.environ, environment, clear=True),
            patch.object(numa_utils, "get_cpu_ids_by_node", return_value=_NODES),
            patch("sglang.srt.utils.get_cpu_ids_by_node", return_value=_NODES),
        ):
            change.start()
            self.addCleanup(change.stop)

    def _bind(self, ranks: int) -> list:
        # The number of threads of this process is not the subject.
        with patch("torch.set_num_threads"):
            return [
                numa_utils.init_threads_binding(numa_index=rank, world_size=ranks)
                for rank in range(ranks)
            ]

    def test_cores_are_dealt_out(self):
        self.assertEqual(self._bind(4), ["0,1", "2,3", "4,5", "6,7"])
        self.assertEqual(
            self._bind(3), ["0,1", "2,3", "4,5,6,7"], "no rank spans two nodes"
        )

    def test_more_ranks_than_cores_share_them(self):
        shares = self._bind(16)
        self.assertEqual(set(shares), set("01234567"))
        self.assertTrue(all(shares.count(core) == 2 for core in set(shares)))

    def test_a_node_for_each_rank_is_as_before(self):
        self.assertEqual(self._bind(2), _NODES)
        os.environ["SGLANG_CPU_OMP_THREADS_BIND"] = "0|2|3"
        self.assertEqual(self._bind(3), ["0", "2", "3"])

    def _check(self, **arguments) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(_CONFIG))
            args = ServerArgs(model_path=folder, device="cpu", **arguments)
            args.resolve_once()
            args.check_server_args()

    def test_unknown_memory_is_refused_at_launch(self):
        with self.assertRaisesRegex(ValueError, "max-total-tokens"):
            self._check(tp_size=4)

    def test_known_memory_is_accepted(self):
        self._check(tp_size=4, max_total_tokens=1024)
        self._check(tp_size=2)


if __name__ == "__main__":
    unittest.main()
