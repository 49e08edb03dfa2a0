"""Unit tests for a worker whose parent dies before it asks to die with it: no server."""

import multiprocessing
import os
import tempfile
import time
import unittest
from pathlib import Path

import psutil

from sglang.srt.utils.common import kill_itself_when_parent_died
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=9, suite="base-a-test-cpu")

_FORK = multiprocessing.get_context("fork")


def _work(orphaned: bool, survived: Path) -> None:
    """A worker that is still importing while its parent may die."""
    parent = os.getppid()
    while orphaned and os.getppid() == parent:
        time.sleep(0.01)
    kill_itself_when_parent_died()
    survived.touch()


def _serve(orphaned: bool, survived: Path, pid: Path) -> None:
    """A server that starts one worker, and dies at once if `orphaned`."""
    child = _FORK.Process(target=_work, args=(orphaned, survived))
    child.start()
    pid.write_text(str(child.pid))
    if not orphaned:
        child.join()
    os._exit(0)


@unittest.skipUnless(os.uname().sysname == "Linux", "PR_SET_PDEATHSIG is of Linux")
class TestOrphanedWorker(CustomTestCase):
    def _survives(self, orphaned: bool) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            survived, pid = Path(folder, "survived"), Path(folder, "pid")
            server = _FORK.Process(target=_serve, args=(orphaned, survived, pid))
            server.start()
            server.join(60)
            deadline = time.monotonic() + 60
            while (
                psutil.pid_exists(int(pid.read_text())) and time.monotonic() < deadline
            ):
                time.sleep(0.01)
            return survived.exists()

    def test_ends_if_the_parent_is_gone_already(self):
        self.assertFalse(self._survives(orphaned=True))

    def test_goes_on_while_the_parent_lives(self):
        self.assertTrue(self._survives(orphaned=False))


if __name__ == "__main__":
    unittest.main()
