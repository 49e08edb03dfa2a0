"""What comes back from the machine: few files, none too large, renewed as the visit goes on."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .summary import FILE, RECORD, TABLE
from .work import LOG, REPORT

MOST_FILES = 8
MOST_BYTES = 16 * 2**20
LONGEST = 2**20  # bytes of the end of one log; halved until all fit
RESULTS, LOGS = "results.tar.xz", "logs.tar.xz"


def light(out: Path, folder: Path, content: Mapping[str, Any]) -> None:
    """Summary, record, each test's outcome and the benchmarks' results: quick to write."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (FILE, TABLE, RECORD):
        shutil.copyfile(out / name, folder / name)
    with (folder / REPORT).open("w", encoding="utf-8") as all_of_them:
        for job in content["jobs"]:
            if (report := out / job["name"] / REPORT).is_file():
                all_of_them.write(report.read_text(errors="replace"))
    files = {
        f"{job['name']}/{path.relative_to(out / job['name'])}": path
        for job in content["jobs"]
        for path in sorted((out / job["name"]).rglob("*"))
        if path.is_file() and path.name not in (LOG, REPORT, "done.txt")
    }
    _packed(files, folder / RESULTS)


def logs(out: Path, folder: Path, served: Path, most: int = MOST_BYTES) -> None:
    """The ends of all logs: of the jobs, and of the servers in the folder `served`."""
    files = {f"{path.parent.name}/{LOG}": path for path in sorted(out.glob(f"*/{LOG}"))}
    files |= {f"servers/{path.name}": path for path in sorted(served.glob("*.log"))}
    _packed(files, folder / LOGS, most)


def _packed(files: Mapping[str, Path], target: Path, most: int = MOST_BYTES) -> None:
    """An archive below `most` bytes; of long files only the end."""
    longest, partial = LONGEST, target.with_name(target.name + ".part")
    while True:
        with tarfile.open(partial, "w:xz", preset=1) as archive:
            for name, path in files.items():
                _add(archive, name, path, longest)
        if partial.stat().st_size < most or longest < 64:
            break
        longest //= 2
    partial.replace(target)


def _add(archive: tarfile.TarFile, name: str, path: Path, longest: int) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - longest))
            data = file.read(longest)
    except OSError:  # a server's log may go while we look
        return
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
