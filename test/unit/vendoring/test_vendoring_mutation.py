"""The run that leaves each patch out, on stacks whose tests do and do not find it; its record."""

from __future__ import annotations

import datetime
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from kit.vendoring_project import HEADER, Project
from vendoring.mutation_record import write_record
from vendoring.series import read_series

TEST = Path("test") / "unit" / "test_widen.py"


def mutation(project: Project, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = project.command("mutation", "--json", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, {entry["slug"]: entry for entry in json.loads(done.stdout)}


def table(project: Project) -> str:
    """The kept table, written anew on the patches as they are now, with nothing run."""
    folder = project.layout.patches
    write_record([], read_series(project.layout), folder)
    return (folder / "mutation.md").read_text().split("---|\n")[1]


def test_mutation_finds_the_patch_without_a_killing_test(patched: Project, tmp_path: Path) -> None:
    status, found = mutation(patched, "--output", str(tmp_path / "table"))
    assert status == 1
    assert {slug: entry["verdict"] for slug, entry in found.items()} == {
        "widen": "killed",
        "more-steps": "survived",
    }
    assert found["widen"]["detail"].startswith("test_width: assert [1] == [1, 2]")
    assert patched.fine("status").count("applied") == 2


def test_mutation_leaves_dependents_out_too(patched: Project) -> None:
    header = HEADER.replace("Retire-When", "Depends: widen\nRetire-When")
    patched.patch("wider", "srt/engine.py", "width=2", "width=3", header)
    test = patched.root / "test" / "unit" / "test_widen.py"
    test.write_text(test.read_text().replace("[1, 2]", "[1, 2, 3]"))
    status, found = mutation(patched, "widen")
    assert status == 0 and found["widen"]["left_out"] == ["widen", "wider"]


def test_mutation_of_a_patch_that_another_one_needs_silently(patched: Project) -> None:
    patched.patch("wider", "srt/engine.py", "width=2", "width=3")
    status, found = mutation(patched, "widen")
    assert status == 1 and found["widen"]["verdict"] == "stuck"
    assert "wider" in found["widen"]["detail"]


def test_mutation_with_a_test_that_fails_anyway(patched: Project) -> None:
    test = patched.root / "test" / "unit" / "test_widen.py"
    test.write_text("def test_width():\n    assert False\n")
    status, found = mutation(patched, "widen")
    assert status == 1 and found["widen"]["verdict"] == "unproven"


def test_mutation_with_a_test_that_is_skipped_here(patched: Project) -> None:
    test = patched.root / "test" / "unit" / "test_widen.py"
    test.write_text("import pytest\n\n\ndef test_width():\n    pytest.skip('no GPU')\n")
    _, found = mutation(patched, "widen", "--output", str(patched.layout.patches))
    assert found["widen"]["with_patch"] == "skipped" and found["widen"]["verdict"] == "unproven"
    assert found["widen"]["detail"] == "not run here: no GPU"
    assert patched.command("check").returncode == 0, "said nothing, so it is no fault"


def test_mutation_keeps_rows_of_patches_that_it_did_not_run(patched: Project) -> None:
    record = patched.layout.patches / "mutation.json"
    days = {datetime.date.today()}
    mutation(patched, "more-steps", "--output", str(record.parent))
    days.add(datetime.date.today())  # midnight may lie between
    text = record.with_name("mutation.md").read_text()
    assert "| widen | | | | not run | | |" in text
    assert any(f"| survived | {day.isoformat()} |" in text for day in days)
    mutation(patched, "widen", "--output", str(record.parent))
    rows = json.loads(record.read_text())["mutants"]
    assert [(row["slug"], row["verdict"]) for row in rows] == [
        ("widen", "killed"),
        ("more-steps", "survived"),
    ]
    assert "mutants: 1 killed, 1 survived\n" in patched.fine("status")
    check = patched.command("check")
    assert check.returncode == 1 and "more-steps is survived" in check.stdout


def test_mutation_row_gets_stale_with_its_patch_but_not_when_a_neighbour_moves_it(
    patched: Project,
) -> None:
    folder = patched.layout.patches
    patched.patch("top", "srt/args.py", "class Args", "import os\n\n\nclass Args")
    mutation(patched, "widen", "more-steps", "--output", str(folder))
    patched.layout.series.write_text("top.patch\nwiden.patch\nmore-steps.patch\n")
    patched.fine("refresh")
    patched.fine("apply")
    assert "| killed |" in table(patched) and "stale" not in table(patched)
    patched.edit("srt/args.py", "steps: int = 4", "steps: int = 5")
    patched.fine("amend", "more-steps")
    patched.fine("export")
    assert "| survived, stale |" in table(patched)
    _, found = mutation(patched, "--due", "--output", str(folder))
    assert set(found) == {"top", "more-steps"}, "never run, and stale"
    assert patched.command("mutation", "--due").returncode == 1, "due by which table?"


def test_mutation_row_gets_stale_with_what_depends_on_its_patch(patched: Project) -> None:
    """It was run with others left out than would be left out now."""
    folder = patched.layout.patches
    mutation(patched, "widen", "--output", str(folder))
    patched.fine("amend", "more-steps", "--depends", "widen")
    patched.fine("export")
    assert "| killed, stale |" in table(patched)
    assert "mutants: 1 stale, 1 not run" in patched.fine("status")
    _, found = mutation(patched, "--due", "--output", str(folder))
    assert found["widen"]["left_out"] == ["widen", "more-steps"]
    assert "| widen (with more-steps) |" in table(patched) and "stale" not in table(patched)


def test_mutation_keeps_no_path_of_this_machine(patched: Project) -> None:
    """Of checkout, scratch tree, interpreter and temporary files only the last part is kept; a
    route of a server is no path. Rows from before are cleaned, too.
    """
    folder = patched.layout.patches
    (patched.root / TEST).write_text(
        "import sys\nimport tempfile\n\nimport sglang\n\n\ndef test_width(tmp_path):\n"
        "    from sglang.srt.engine import decode\n\n"
        "    places = [tmp_path / 'a.log', sglang.__file__, tempfile.gettempdir(), sys.prefix]\n"
        "    text = ' '.join(map(repr, places)) + f' (end of {__file__}) /v1/models'\n"
        "    assert decode([1, 2, 3]) == [1, 2], text\n"
    )
    _, found = mutation(patched, "widen", "--output", str(folder))
    detail = found["widen"]["detail"]
    assert "…/a.log" in detail and "…/__init__.py" in detail and "/v1/models" in detail, detail
    record = folder / "mutation.json"
    record.write_text(record.read_text().replace("…/a.log", f"{patched.root}/old.log"))
    assert str(patched.root) in record.read_text()
    mutation(patched, "more-steps", "--output", str(folder))
    assert "…/old.log" in (folder / "mutation.md").read_text()
    for name in ("mutation.json", "mutation.md"):
        text = (folder / name).read_text()
        for place in (patched.root, tempfile.gettempdir(), sys.prefix, Path.home()):
            assert str(place) not in text, (name, place)


def test_mutation_survives_an_interrupt_with_what_was_done(patched: Project) -> None:
    """The second patch's run is cut off by a test that ends pytest and its parent alike."""
    folder = patched.layout.patches
    (patched.root / TEST).write_text(
        "import os\nimport signal\n\n\ndef test_width():\n"
        "    from sglang.srt import args, engine\n\n"
        "    if args.Args.steps == 3:\n        os.kill(os.getppid(), signal.SIGINT)\n"
        "    assert engine.decode([1, 2, 3]) == [1, 2]\n"
    )
    done = patched.command("mutation", "--output", str(folder))
    assert done.returncode == 130
    rows = json.loads((folder / "mutation.json").read_text())["mutants"]
    assert [(row["slug"], row["verdict"]) for row in rows] == [("widen", "killed")]


def test_mutation_of_a_test_that_hangs_without_the_patch(patched: Project) -> None:
    """A hang is a failure too, and nothing of it stays behind."""
    nap = f"600.{os.getpid()}"
    (patched.root / TEST).write_text(
        "import subprocess\n\n\ndef test_width():\n"
        "    from sglang.srt.engine import decode\n\n"
        "    if decode([1, 2, 3]) != [1, 2]:\n"
        f"        subprocess.run(['sleep', '{nap}'])\n"
    )
    # Seconds. What does not hang takes one, and more where others have the processors.
    for limit in ("4", "16", "64"):
        status, found = mutation(patched, "widen", "--timeout", limit)
        assert found["widen"]["without"] == "timeout"
        if found["widen"]["with_patch"] != "timeout":
            break
    assert status == 0
    deadline = time.monotonic() + 60
    while (left := _naps(nap)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def _naps(seconds: str) -> list[int]:
    """Processes that sleep so long."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline() == ["sleep", seconds]:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_mutation_gives_the_scratch_tree_a_stamp_that_fits(patched: Project) -> None:
    """Tests of what the package says about itself need one, also with a patch left out."""
    (patched.root / TEST).write_text(
        "import hashlib\nimport json\nfrom pathlib import Path\n\n\ndef test_width():\n"
        "    import sglang\n\n"
        "    tree = Path(sglang.__file__).parent\n"
        "    stamp = json.loads((tree / '_spec_pin.json').read_text())\n"
        "    for name, digest in stamp['files'].items():\n"
        "        assert hashlib.sha256((tree / name).read_bytes()).hexdigest() == digest\n"
        "    slugs = [patch['slug'] for patch in stamp['patches']]\n"
        "    assert slugs == ['widen', 'more-steps'], slugs\n"
    )
    status, found = mutation(patched, "widen")
    assert status == 0, found
    assert found["widen"]["detail"].startswith("test_width: AssertionError: ['more-steps']")


def test_mutation_passes_arguments_to_pytest(patched: Project) -> None:
    _, found = mutation(patched, "widen", "--pytest-arg=-k", "--pytest-arg=nothing_of_the_kind")
    assert found["widen"]["verdict"] == "unproven"
