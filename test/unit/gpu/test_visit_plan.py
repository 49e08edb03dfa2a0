"""What a visit's plan may say, what starts when, and how few files come back."""

from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path

import pytest
from gpu_visit import bring, code, summary
from gpu_visit.machine import Machine
from gpu_visit.plan import Benchmark, Job, Lane, Plan, PlanError, read
from gpu_visit.schedule import Schedule, Start, foreseen, hindrance

LANE = """
[[lane]]
name = "quick"
goal = "It is known."
worth = 9
seconds = 60
tests = ["test/gpu/test_bench.py"]
"""
BENCHMARK = """
[[benchmark]]
name = "speed"
goal = "It is measured."
worth = 5
seconds = 60
argv = ["python", "benchmark/kv_gpu.py", "--output", "{out}/kv.json"]
results = ["kv.json"]
"""


def test_a_plan_is_read_by_worth(tmp_path: Path) -> None:
    file = tmp_path / "visit.toml"
    file.write_text("[visit]\nseconds = 90\n" + BENCHMARK + LANE)
    plan = read(file)
    assert [job.name for job in plan.jobs] == ["quick", "speed"] and plan.seconds == 90
    assert [job.alone for job in plan.jobs] == [False, True], "a benchmark has its GPU for itself"


@pytest.mark.parametrize(
    ("text", "key", "remedy"),
    [
        (LANE + "gpus = 2", "lane[quick].gpus = 2", "unknown; known are name, goal"),
        ("[[race]]\n", "race = ", "unknown; known are visit, lane, benchmark"),
        ("[visit]\nlimit = 3" + LANE, "visit.limit = 3", "known are seconds, lanes_share"),
        ("[visit]\nlanes_share = 2" + LANE, "visit.lanes_share = 2", "a share from 0 to 1"),
        (LANE.replace("worth = 9", ""), "lane[quick].worth = None", "it has to be given"),
        (LANE.replace("9", "true"), "lane[quick].worth = True", "write a int"),
        (LANE.replace("60", "0"), "lane[quick].seconds = 0", "a number above 0"),
        (LANE + 'gpu_gb = "much"', "lane[quick].gpu_gb = 'much'", "write a number"),
        (LANE + 'select = "("', "lane[quick].select = '('", "regular expression"),
        (LANE.replace("[\"test/gpu/test_bench.py\"]", "[]"), "lane[quick].tests = []", "at least"),
        (LANE.replace('"quick"', '"a b"'), "lane[a b].name = 'a b'", "dots and hyphens"),
        (LANE + LANE, "name = 'quick'", "a name of its own"),
        (LANE + 'argv = ["python"]', "lane[quick].argv", "unknown"),
        (BENCHMARK.replace('"python"', '"rm"'), "benchmark[speed].argv = 'rm'", "interpreter"),
        (BENCHMARK.replace("{out}", "{where}"), "argv = '{where}/kv.json'", "known are out"),
        (BENCHMARK.replace('["kv', '["../kv'), "results = '../kv.json'", "a file in {out}"),
        ("", "lane = []", "write a [[lane]]"),
        ("lane = 3", "lane = 3", "[[lane]], once for each"),
        ("[lane", "visit.toml", "name a plan in TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_file_key_value_and_remedy(
    tmp_path: Path, text: str, key: str, remedy: str
) -> None:
    file = tmp_path / "visit.toml"
    file.write_text(text)
    with pytest.raises(PlanError) as error:
        read(file)
    said = str(error.value)
    assert said.startswith(f"{file}: ") and key in said and remedy in said, said


def lane(name: str, worth: int = 1, seconds: int = 100, **given: object) -> Lane:
    fixed = {"goal": "g", "tests": ("t",), "servers": 1, "gpu_gb": 10.0}
    return Lane(name=name, worth=worth, seconds=seconds, **(fixed | given))  # type: ignore[arg-type]


def bench(name: str, worth: int = 1, seconds: int = 100, **given: object) -> Benchmark:
    fixed = {"goal": "g", "argv": ("python",), "servers": 1, "gpu_gb": 10.0}
    return Benchmark(name=name, worth=worth, seconds=seconds, **(fixed | given))  # type: ignore[arg-type]


def played(
    jobs: list[Job], gpus: int = 1, seconds: float = 1000, share: float = 0.5, servers: int = 8,
    cores: int = 0,
) -> dict[str, Start]:  # fmt: skip
    machine = Machine(tuple(map(str, range(gpus))), 100.0, servers, tuple(range(cores)))
    plan = Plan(tuple(sorted(jobs, key=lambda job: -job.worth)), 0, share)
    found = foreseen(Schedule.of(plan, machine, seconds, set()))
    return {start.job.name: start for start in found}


def test_lanes_share_a_gpu_as_far_as_memory_and_servers_go() -> None:
    found = played([lane("a", 3, gpu_gb=50), lane("b", 2, gpu_gb=50), lane("c", 1, gpu_gb=30)])
    assert [found[name].at for name in "abc"] == [0, 100, 0], "90 of 100 GB are given away"
    found = played([lane("a", 3), lane("b", 2), lane("c", 1)], servers=2)
    assert [found[name].at for name in "abc"] == [0, 0, 100]
    found = played([lane("a"), lane("b", alone=True), lane("c")])
    assert found["b"].at == 100 and found["c"].at == 0


def test_lanes_spread_over_the_gpus() -> None:
    found = played([lane("a", 3), lane("b", 2), lane("c", 1, needs=2)], gpus=2)
    assert [found[name].gpus for name in "abc"] == [("0",), ("1",), ("0", "1")]


def test_benchmarks_come_after_the_lanes_alone_and_by_worth() -> None:
    found = played([bench("x", 9), bench("y", 5), lane("a", 1, seconds=200)])
    assert [found[name].at for name in "axy"] == [0, 200, 300]


def test_only_those_that_say_so_run_beside_each_other_on_other_gpus() -> None:
    found = played([bench("x", 9, beside=True), bench("y", 5, beside=True), bench("z", 1)], gpus=2)
    assert [found[name].at for name in "xyz"] == [0, 0, 100]
    assert {found["x"].gpus, found["y"].gpus} == {("0",), ("1",)}


def test_where_gpus_have_cores_of_their_own_quiet_benchmarks_run_at_once() -> None:
    jobs: list[Job] = [bench("x", 9), bench("y", 5, 150), bench("wide", 3, needs=2)]
    jobs += [bench("z", 1), lane("a", 2, 50)]
    found = played(jobs, gpus=2, cores=24)
    assert [found[name].at for name in ("a", "x", "y", "wide", "z")] == [0, 50, 50, 200, 300]
    assert found["x"].gpus != found["y"].gpus and found["wide"].gpus == ("0", "1")
    assert [played(jobs, gpus=2, cores=23)[name].at for name in "xy"] == [50, 150]


def test_each_gpu_has_an_equal_part_of_the_cores() -> None:
    machine = Machine(("4", "7"), 100.0, 8, (0, 1, 2, 5, 6, 9, 11))
    assert machine.cores_of(["7"]) == (5, 6, 9) and machine.cores_of(["4"]) == (0, 1, 2)
    assert machine.cores_of(["4", "7"]) == (0, 1, 2, 5, 6, 9)


def test_a_wide_benchmark_is_not_kept_waiting_by_narrow_ones() -> None:
    jobs = [bench(f"n{n}", 9 - n, seconds=100 + 50 * n, beside=True) for n in range(2)]
    found = played(
        [*jobs, bench("wide", 5, needs=2, beside=True), bench("late", 1, beside=True)], 2
    )
    assert found["late"].at >= found["wide"].at == 150


def test_lanes_make_room_at_their_share_and_come_back_for_what_is_left() -> None:
    jobs: list[Job] = [
        lane("long", 9, 900, least=90),
        bench("x", 5, 200),
        lane("late", 1, 200, alone=True),
    ]
    found = played(jobs, share=0.4)
    assert found["long"].limit == 400 and found["x"].at == 400 and found["late"].at == 600
    assert played(jobs[:1], share=0.4)["long"].limit == 900, "nothing else wants the time"


def test_no_time_is_spent_waiting_for_lanes_that_do_not_fit_their_share() -> None:
    found = played([lane("long", 9, 900), bench("x", 5, 200)], share=0.4)
    assert (found["x"].at, found["long"].at, found["long"].limit) == (0, 200, 800)
    found = played([lane("a", 9, 100), lane("long", 8, 900, alone=True)], share=1, seconds=200)
    assert set(found) == {"a"}


def test_nothing_is_begun_for_which_too_little_time_is_left() -> None:
    found = played([lane("a", 2, 100), lane("b", 1, 100, alone=True)], seconds=140)
    assert set(found) == {"a"}
    found = played([lane("a", 2, 100), lane("b", 1, 100, alone=True, least=30)], seconds=140)
    assert found["b"].limit == 40


def test_no_start_ever_breaks_a_rule() -> None:
    for seed in range(60):
        dice = random.Random(seed)
        cores = dice.choice([0, 48])
        jobs: list[Job] = []
        for number in range(12):
            given = {
                "needs": dice.choice([1, 1, 2, 4]),
                "gpu_gb": dice.choice([5.0, 30.0, 60.0]),
                "servers": dice.choice([1, 3]),
            }
            beside, alone = dice.random() < 0.5, dice.random() < 0.2
            worth, seconds = dice.randrange(9), dice.randrange(10, 300)
            if dice.random() < 0.5:
                jobs.append(lane(f"l{number}", worth, seconds, alone=alone, **given))
            else:
                jobs.append(bench(f"b{number}", worth, seconds, beside=beside, **given))
        starts = list(played(jobs, gpus=4, seconds=900, cores=cores).values())
        for moment in {start.at for start in starts}:
            now = [one for one in starts if one.at <= moment < one.at + one.limit]
            assert sum(one.job.servers for one in now) <= 8
            for gpu in "0123":
                there = [one.job for one in now if gpu in one.gpus]
                assert sum(job.gpu_gb for job in there) <= 90
                assert len(there) < 2 or not any(job.alone for job in there)
            quiet = [one for one in now if isinstance(one.job, Benchmark) and not one.job.beside]
            roomy = cores == 48 and all(one.job.kind == "benchmark" for one in now)
            assert not quiet or len(now) == 1 or roomy
        assert all(one.at + one.limit <= 900 and len(one.gpus) == one.job.needs for one in starts)


def test_what_a_machine_can_never_run_is_named() -> None:
    machine = Machine(("0",), 100.0, 4)
    assert hindrance(lane("a", needs=2), machine) == "needs 2 GPUs, this host has 1"
    assert "takes 95 GB of a GPU, 90 GB may be used" in hindrance(lane("a", gpu_gb=95), machine)
    assert "9 servers at once, this host carries 4" in hindrance(lane("a", servers=9), machine)


def test_what_comes_back_is_few_files_and_small(tmp_path: Path) -> None:
    out, served, home = tmp_path / "out", tmp_path / "served", tmp_path / "home"
    for folder in (out / "a", served):
        folder.mkdir(parents=True)
    noise = random.Random(1).randbytes(400_000)
    (out / "a/log.txt").write_bytes(noise)
    (served / "s.log").write_bytes(noise + b"the end")
    home.mkdir()
    bring.logs(out, home, served, most=300_000)
    assert (home / bring.LOGS).stat().st_size < 300_000
    with tarfile.open(home / bring.LOGS) as archive:
        kept = archive.extractfile("servers/s.log")
        assert kept is not None and kept.read().endswith(b"the end")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("patch_set", "a" * 64, "patch set aaaaaaaaaaaa, here is "),
        ("code", "c" * 64, "code cccccccccccc, here is "),
        ("gpus", [{"name": "Other"}], "GPUs Other, here is "),
    ],
)
def test_a_summary_of_other_code_or_other_gpus_is_refused(
    key: str, value: object, says: str
) -> None:
    here = summary.about(())
    assert summary.passed_before({"about": here, "jobs": []}, here) == {}
    with pytest.raises(summary.SummaryError, match=says):
        summary.passed_before({"about": {**here, key: value}, "jobs": []}, here)


def test_the_code_is_that_of_modules_and_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = code.code_hash()
    assert ours == code.code_hash() and len(ours) == 64
    monkeypatch.setattr(code, "TESTS", tmp_path / "test")
    (tmp_path / "test/results").mkdir(parents=True)
    seen = {ours, code.code_hash()}
    (tmp_path / "test/test_one.py").write_text("1")
    seen.add(code.code_hash())
    (tmp_path / "test/results/run.py").write_text("1")
    assert code.code_hash() in seen and len(seen) == 3


def test_something_else_is_no_summary(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    for text in ("", "{}", json.dumps({"about": {}, "jobs": [{"name": 1}]})):
        file.write_text(text)
        with pytest.raises(summary.SummaryError, match="no summary of a visit"):
            summary.read(file)
