"""Unit tests for what kill_process_tree leaves in /dev/shm: no server, no model loading."""

import multiprocessing
import tempfile
import time
import unittest
import uuid
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path

from sglang.srt.managers.load_snapshot import ShmLoadSnapshotWriter
from sglang.srt.utils import kill_process_tree
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

_SHARED_MEMORY = Path("/dev/shm")


def _with_own_tracker(hold, name: str, ready: Path) -> None:
    """A forked process would share the tracker of the test, which nobody kills."""
    tracker = resource_tracker.ResourceTracker()
    resource_tracker._resource_tracker = tracker
    for function in ("ensure_running", "register", "unregister"):
        setattr(resource_tracker, function, getattr(tracker, function))
    hold(name, ready)


def _hold_segment(name: str, ready: Path) -> None:
    """A process that owns a segment, as the message queue of a rank does."""
    segment = shared_memory.SharedMemory(name=name, create=True, size=4096)
    ready.touch()
    time.sleep(600)
    segment.close()


def _hold_snapshot(name: str, ready: Path) -> None:
    """A process that publishes its load, as a scheduler does."""
    writer = ShmLoadSnapshotWriter(str(_SHARED_MEMORY / name), dp_size=1, dp_rank=0)
    ready.touch()
    time.sleep(600)
    writer.close()


@unittest.skipUnless(_SHARED_MEMORY.is_dir(), "needs /dev/shm")
class TestKilledTreeLeavesNoSharedMemory(CustomTestCase):
    def _is_left(self, hold) -> bool:
        """Kill a tree whose first process runs `hold`, and look for what it held."""
        name = f"sglang_test_{uuid.uuid4().hex}"
        file = _SHARED_MEMORY / name
        self.addCleanup(file.unlink, missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            ready = Path(folder, "ready")
            process = multiprocessing.get_context("fork").Process(
                target=_with_own_tracker, args=(hold, name, ready)
            )
            process.start()
            self.assertTrue(self._wait(ready.exists))
        self.assertTrue(file.exists())
        kill_process_tree(process.pid)
        process.join(60)
        return not self._wait(lambda: not file.exists(), seconds=10)

    def _wait(self, condition, seconds: float = 60) -> bool:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        return condition()

    def test_segment_of_a_killed_process_is_unlinked(self):
        self.assertFalse(self._is_left(_hold_segment))

    def test_load_snapshot_of_a_killed_process_is_unlinked(self):
        self.assertFalse(self._is_left(_hold_snapshot))


if __name__ == "__main__":
    unittest.main()
