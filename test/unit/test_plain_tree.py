"""The plain package on a host without a network: what an overlay has replaced there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kit.upstream import git_apply

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import runpy, sys
from pathlib import Path
from kit.upstream import kept_plain, taken_back
put_on = runpy.run_path(sys.argv[1])["put_on"]
site, overlay, into = map(Path, sys.argv[2:])
assert not kept_plain()
about = {"version": "1", "python_tag": f"cp3{sys.version_info[1]}", "delete": ["gone.py"]}
put_on(site, overlay, about)
assert kept_plain()
taken_back(into)
"""


def files(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def test_what_an_overlay_replaced_is_plain_again(tmp_path: Path) -> None:
    site, overlay, into = (tmp_path / name for name in ("site", "overlay", "into"))
    plain = {"__init__.py": "", "same.py": "same", "srt/old.py": "plain", "gone.py": "gone"}
    patched = {"srt/old.py": "patched", "srt/spec_hardening/new.py": "new"}
    for folder, content in ((site, plain), (overlay, patched)):
        for name, text in content.items():
            file = folder / "sglang" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    into.mkdir()
    tool = ROOT / "python/vendoring/gpu/overlay_site.py"
    path = [str(site), str(ROOT / "python"), str(ROOT / "test")]
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, (tool, site, overlay, into))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        check=True,
    )
    laid_over = files(site / "sglang")
    assert "srt/spec_hardening/new.py" in laid_over and "gone.py" not in laid_over
    assert files(into / "sglang") == plain
    assert not (into / "sglang/srt/spec_hardening").exists()  # it would be a package


def test_a_patch_reaches_a_package_inside_of_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    package = tmp_path / "build/tree/sglang"
    package.mkdir(parents=True)
    (package / "old.py").write_text("plain\n")
    patch = tmp_path / "one.patch"
    patch.write_text("--- a/old.py\n+++ b/old.py\n@@ -1 +1 @@\n-plain\n+patched\n")
    git_apply(patch, package)
    assert (package / "old.py").read_text() == "patched\n"
    git_apply(patch, package, "-R")
    assert (package / "old.py").read_text() == "plain\n"
