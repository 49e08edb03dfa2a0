"""The commands: a draft from nothing, in one call, on a machine without the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from kit import small_target
from sglang_spec.hardening import contract
from sglang_spec.train.command import train

torch = pytest.importorskip("torch")


@pytest.fixture
def engineless(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import of what is missing there fails; what is imported already is not asked for."""
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])


class Missing:
    """Finds nothing, and says so, for what a GPU machine with no network lacks."""

    names = ("sglang", "sgl_kernel", "gguf", "jsonschema", "flashinfer")

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_all_of_it(folder: Path, held_out: Path, tmp_path: Path, engineless: None) -> None:
    """A draft from nothing for two seeds, without the engine; then again: nothing is done twice."""
    path, out = small_target.recipe(tmp_path, folder, held_out), tmp_path / "out"
    words = ["all", "--recipe", str(path), "--output", str(out), "--seed", "0", "--seed", "4"]
    done = CliRunner().invoke(train, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert list(found) == ["prompts", "answers", "fit", "export", "evaluate"]
    assert {run["step"] for run in found["fit"].values()} == {30}
    spread = found["evaluate"]["spread"]["all"]
    assert 1 <= spread["least"] <= spread["mean"] <= spread["most"] <= 4
    draft = Path(found["export"]["4"]["draft"])
    assert (draft / "capture_fingerprint.json").is_file()
    assert contract.check_pair(str(folder), str(draft), contract.Settings()).accepted
    assert (out / "curves.png").read_bytes()[:4] == b"\x89PNG"
    card = (out / "README.md").read_text()
    assert "| 4 | 30 |" in card and "BSD-3-Clause" in card and "one layer later" in card
    assert "None" not in card

    before = (out / "seed-0/checkpoint.safetensors").stat().st_mtime_ns
    again = CliRunner().invoke(train, words)
    assert again.exit_code == 0, again.output
    assert "accept length, all:" in again.stdout
    assert (out / "seed-0/checkpoint.safetensors").stat().st_mtime_ns == before


@pytest.mark.full  # ten seconds for imports alone; the test above blocks the same names
def test_in_a_process_that_never_had_the_engine(
    folder: Path, held_out: Path, tmp_path: Path
) -> None:
    path = small_target.recipe(tmp_path, folder, held_out)
    program = (
        f"import sys\nsys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n"
        "from unit.train.test_command import Missing\n"
        "sys.meta_path.insert(0, Missing())\nfrom sglang_spec.cli import main\nmain()\n"
    )
    words = ["train", "all", "--recipe", str(path), "--output", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "sglang.srt" not in done.stderr


def test_it_stops_on_time(folder: Path, held_out: Path, tmp_path: Path) -> None:
    path = small_target.recipe(tmp_path, folder, held_out)
    words = ["answers", "--recipe", str(path), "--output", str(tmp_path / "out")]
    assert CliRunner().invoke(train, ["prompts", *words[1:]]).exit_code == 0
    done = CliRunner().invoke(train, [*words, "--stop-after", "1e-9"])
    assert done.exit_code == 1
    assert "minutes of this call are over; the same command goes on in" in done.output


def test_a_plan_does_nothing(folder: Path, held_out: Path, tmp_path: Path) -> None:
    path = small_target.recipe(tmp_path, folder, held_out)
    words = ["--recipe", str(path), "--output", str(tmp_path / "out"), "--dry-run"]
    done = CliRunner().invoke(train, ["all", *words, "--json"])
    assert done.exit_code == 0
    assert "3 steps unrolled" in json.loads(done.output)["stages"]["fit"]
    assert not (tmp_path / "out").exists()
    assert "answers:" in CliRunner().invoke(train, ["all", *words]).output


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fit", "--set", "fit.steps=x"], 2, "fit.steps = 'x': write a whole number"),
        (["fit"], 1, "run `sglang-spec train answers` first"),
        (["answers"], 1, "run `sglang-spec train prompts` first"),
        (["export"], 1, "run `sglang-spec train fit` first"),
        (["answers", "--data", "d"], 2, "--data takes the place of prompts and answers"),
        (["fit", "--data", "nothing"], 1, "give a folder of `capture standardize`"),
        (["fit", "--set", "target.path=nowhere"], 1, "nowhere"),
    ],
)
def test_wrong_use(
    words: list[str], code: int, said: str, folder: Path, held_out: Path, tmp_path: Path
) -> None:
    path = small_target.recipe(tmp_path, folder, held_out)
    place = ["--recipe", str(path), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(train, [words[0], *place, *words[1:]])
    assert done.exit_code == code, done.output
    assert said in done.output
