"""How the upstream wheel is fetched."""

from __future__ import annotations

import subprocess
import sys

from vendoring.layout import checkout


def test_the_search_for_pip_leaves_setuptools_loadable() -> None:
    """Where `pip` is looked for as a module, setuptools fails, and torch's compiler with it."""
    code = (
        "import sys; from vendoring.wheel_cache import pip_command;"
        "assert pip_command() == [sys.executable, '-m', 'pip'];"
        "import setuptools; assert 'pip' not in sys.modules"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=checkout().python, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
