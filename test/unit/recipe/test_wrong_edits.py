"""Wrong edits of a recipe, each refused by name: code, key, and words of the remedy."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from kit.checkpoints import copy
from kit.faults import IDS
from kit.recipes import facts, recipe
from sglang_spec.models import Pair
from sglang_spec.recipe.command import serve
from sglang_spec.recipe.read import load

BASE = "kimi-k2.5-rtx-pro-6000"
SECRETS = 'secrets = "/etc/sglang-spec/secrets.yaml"'


class Edit(NamedTuple):
    old: str
    new: str
    code: str
    key: str
    remedy: str


EDITS = {
    "misspelt key": Edit(
        "num_steps = 3", "num_step = 3", "unknown-key", "draft.num_step", "did you mean num_steps?"
    ),
    "misspelt section": Edit(
        "[threshold]", "[treshold]", "unknown-key", "treshold", "did you mean threshold?"
    ),
    "a flag for a key": Edit(
        "rank_check = 64",
        "speculative_rank_check = 64",
        "unknown-key",
        "comm.speculative_rank_check",
        "rank_check",
    ),
    "no TOML": Edit("[model]", "[model", "no-toml", "file", "line"),
    "no model": Edit(
        'path = "/srv/models/Kimi-K2.5"', "", "missing-key", "model.path", "write a text"
    ),
    "no draft tokens": Edit(
        "num_draft_tokens = 4",
        "",
        "missing-key",
        "draft.num_draft_tokens",
        "write a whole number",
    ),
    "a number in quotes": Edit(
        "tp_size = 8", 'tp_size = "8"', "wrong-type", "nodes.tp_size", "write a whole number"
    ),
    "true for a number": Edit(
        "max_queued_requests = 512",
        "max_queued_requests = true",
        "wrong-type",
        "limits.max_queued_requests",
        "a whole number",
    ),
    "a text for true": Edit(
        "trust_remote_code = true",
        'trust_remote_code = "yes"',
        "wrong-type",
        "model.trust_remote_code",
        "true or false",
    ),
    "layers as texts": Edit(
        "outputs_of_layers = [2, 30, 58]",
        'outputs_of_layers = ["2", "30", "58"]',
        "wrong-type",
        "capture.outputs_of_layers",
        "a list of whole numbers",
    ),
    "port": Edit("port = 30000", "port = 300000", "out-of-range", "listen.port", "65535 or less"),
    "no running requests": Edit(
        "max_running_requests = 128", "", "running-requests", "limits.max_running_requests", "48"
    ),
    "graphs wider than the batch": Edit(
        "max_running_requests = 128",
        "max_running_requests = 48",
        "graphs-unreached",
        "limits.cuda_graph_max_bs",
        "max_running_requests is 48",
    ),
    "threshold above the batch": Edit(
        'disable_at = "auto"',
        "disable_at = 200",
        "threshold-unreached",
        "threshold.disable_at",
        "max_running_requests is 128",
    ),
    "threshold's bounds": Edit(
        'disable_at = "auto"',
        "disable_at = 64\nenable_at = 64",
        "threshold-order",
        "threshold.enable_at",
        "less than 64",
    ),
    "threshold's word": Edit(
        'disable_at = "auto"',
        'disable_at = "automatic"',
        "not-a-choice",
        "threshold.disable_at",
        "auto",
    ),
    "draft tokens of a chain": Edit(
        "num_draft_tokens = 4",
        "num_draft_tokens = 6",
        "draft-tokens",
        "draft.num_draft_tokens",
        "3 steps has 4",
    ),
    "the embedding": Edit(
        "outputs_of_layers = [2, 30, 58]",
        "outputs_of_layers = [-1, 2, 30]",
        "layer-negative",
        "capture.outputs_of_layers",
        "embedding is not a layer",
    ),
    "layers reversed": Edit(
        "outputs_of_layers = [2, 30, 58]",
        "outputs_of_layers = [58, 30, 2]",
        "layer-order",
        "capture.outputs_of_layers",
        "[2, 30, 58]",
    ),
    "reasoning parser": Edit(
        'reasoning = "kimi_k2"',
        'reasoning = "kimi-k2"',
        "parser",
        "parsers.reasoning",
        "did you mean kimi_k2?",
    ),
    "tool-call parser": Edit(
        'tool_call = "kimi_k2"',
        'tool_call = "llama31"',
        "parser",
        "parsers.tool_call",
        "did you mean llama3?",
    ),
    "two sizes of the host cache": Edit(
        "ratio = 2.0",
        "ratio = 2.0\nsize_gb = 64",
        "cache-size",
        "hierarchical_cache.size_gb",
        "leave one",
    ),
    "a host cache smaller than the GPU's": Edit(
        "ratio = 2.0", "ratio = 0.5", "out-of-range", "hierarchical_cache.ratio", "1.0 or more"
    ),
    "no API key": Edit(SECRETS, "", "api-key", "listen.host", "listen.secrets"),
    "secrets that SGLang cannot read": Edit(
        SECRETS, 'secrets = "/run/key.txt"', "secrets-name", "listen.secrets", ".yaml"
    ),
    "a key among the flags": Edit(
        "[nodes]",
        '[extra]\nflags = ["--admin-api-key", "s3cret"]\n[nodes]',
        "secret",
        "extra.flags",
        "no secret",
    ),
    "a token in the environment": Edit(
        "[nodes]",
        '[extra.environment]\nHF_TOKEN = "hf_x"\n[nodes]',
        "secret",
        "extra.environment.HF_TOKEN",
        "environment of the service",
    ),
    "a flag that is a key": Edit(
        "[nodes]",
        '[extra]\nflags = ["--port", "1"]\n[nodes]',
        "flag-has-a-key",
        "extra.flags",
        "listen.port",
    ),
    "nodes without a meeting place": Edit(
        "tp_size = 8", "tp_size = 8\ncount = 2", "nodes", "nodes.leader", "HOST:PORT"
    ),
    "ranks that do not divide": Edit(
        "tp_size = 8",
        'tp_size = 8\ncount = 3\nleader = "a:1"',
        "nodes",
        "nodes.tp_size",
        "multiple of 3",
    ),
    "fewer GPUs than ranks": Edit("gpus = 8", "gpus = 4", "gpus", "machine.gpus", "8 ranks"),
    "another GPU": Edit(
        'name = "RTX PRO 6000"',
        'name = "H200"',
        "machine-name",
        "machine.name",
        "RTX PRO 6000 Blackwell",
    ),
    "another chip": Edit(
        'capability = "12.0"',
        'capability = "9.0"',
        "machine-capability",
        "machine.capability",
        "12.0",
    ),
    "more memory": Edit(
        "memory_gib = 94",
        "memory_gib = 141",
        "machine-memory_gib",
        "machine.memory_gib",
        "95.6 GiB",
    ),
    "fusion on SM120": Edit(
        "rank_check = 64", 'rank_check = 64\nfusion = "auto"', "comm", "comm", "see doctor comm"
    ),
    "no number": Edit(
        "context_length = 131072",
        "mem_fraction_static = nan",
        "out-of-range",
        "model.mem_fraction_static",
        "finite",
    ),
    "no end": Edit(
        "ratio = 2.0", "ratio = inf", "out-of-range", "hierarchical_cache.ratio", "finite"
    ),
    "attention backend": Edit(
        'attention_backend = "flashinfer"',
        'attention_backend = "flash_infer"',
        "not-a-choice",
        "model.attention_backend",
        "did you mean flashinfer?",
    ),
    "dtype of the KV cache": Edit(
        'kv_cache_dtype = "bfloat16"',
        'kv_cache_dtype = "fp8"',
        "not-a-choice",
        "model.kv_cache_dtype",
        "fp8_e4m3",
    ),
    "storage of the host cache": Edit(
        "ratio = 2.0",
        'ratio = 2.0\nstorage_backend = "moonkake"',
        "not-a-choice",
        "hierarchical_cache.storage_backend",
        "did you mean mooncake?",
    ),
    "a class that is no model": Edit(
        "KimiK25ForConditionalGeneration",
        "KimiK25ForConditionalGenerating",
        "architecture",
        "model.architecture",
        "KimiK25ForConditionalGeneration",
    ),
    "a host without GPUs that has eight": Edit(
        "layers = 61", 'layers = 61\ndevice = "cpu"', "no-gpus", "model.device", "leave out one"
    ),
    "a colon in the name": Edit(
        'served_name = "kimi-k2.5"',
        'served_name = "kimi:k2"',
        "served-name",
        "model.served_name",
        "colon",
    ),
    "heads that do not divide": Edit(
        "tp_size = 8", "tp_size = 6", "heads", "nodes.tp_size", "[1, 2, 4, 8, 16, 32, 64]"
    ),
    "a layer beyond the last": Edit(
        "outputs_of_layers = [2, 30, 58]",
        "outputs_of_layers = [2, 30, 61]",
        "layer-beyond",
        "capture.outputs_of_layers",
        "60 is the last",
    ),
    "a floor that nothing reaches": Edit(
        "num_steps = 3",
        "num_steps = 3\nmin_accept_length = 4.5",
        "accept-length",
        "draft.min_accept_length",
        "4 at most",
    ),
    "more tokens than the tree has": Edit(
        "num_draft_tokens = 4",
        "num_draft_tokens = 38\ntopk = 4",
        "draft-tokens",
        "draft.num_draft_tokens",
        "37 tokens at most",
    ),
    "the target as its own draft": Edit(
        'path = "/srv/models/kimi-k2.5-eagle3"',
        'path = "/srv/models/Kimi-K2.5"',
        "not-a-pair",
        "draft.path",
        "it is the target",
    ),
    "a name that only begins like loopback": Edit(
        f'host = "0.0.0.0"\nport = 30000\n{SECRETS}',
        'host = "127.example.org"',
        "api-key",
        "listen.host",
        "listen.secrets",
    ),
    "a URL for a host": Edit(
        'host = "0.0.0.0"', 'host = "http://0.0.0.0"', "host", "listen.host", "an address or a name"
    ),
    "no address": Edit(
        'host = "0.0.0.0"', 'host = "0.0.0.0.0"', "host", "listen.host", "an address or a name"
    ),
    "a meeting place without such a port": Edit(
        "tp_size = 8",
        'tp_size = 8\ncount = 2\nleader = "10.0.0.1:99999"',
        "nodes",
        "nodes.leader",
        "65535",
    ),
    "a misspelt flag": Edit(
        "[nodes]",
        '[extra]\nflags = ["--sleep-on-idel"]\n[nodes]',
        "unknown-flag",
        "extra.flags",
        "did you mean --sleep-on-idle?",
    ),
    "another spelling of a flag that is a key": Edit(
        "[nodes]",
        '[extra]\nflags = ["--tensor-parallel-size", "4"]\n[nodes]',
        "flag-has-a-key",
        "extra.flags",
        "nodes.tp_size",
    ),
    "the beginning of a flag that is a key": Edit(
        "[nodes]",
        '[extra]\nflags = ["--max-running", "4"]\n[nodes]',
        "flag-has-a-key",
        "extra.flags",
        "limits.max_running_requests",
    ),
    "the device as a flag": Edit(
        "[nodes]",
        '[extra]\nflags = ["--device", "cpu"]\n[nodes]',
        "flag-has-a-key",
        "extra.flags",
        "model.device",
    ),
    "a flag's value": Edit(
        "[nodes]",
        '[extra]\nflags = ["--watchdog-timeout", "soon"]\n[nodes]',
        "wrong-type",
        "extra.flags",
        "--watchdog-timeout takes one number",
    ),
    "a flag's choice": Edit(
        "[nodes]",
        '[extra]\nflags = ["--grammar-backend=xgramar"]\n[nodes]',
        "not-a-choice",
        "extra.flags",
        "did you mean xgrammar?",
    ),
    "a flag without its value": Edit(
        "[nodes]",
        '[extra]\nflags = ["--watchdog-timeout", "--sleep-on-idle"]\n[nodes]',
        "no-value",
        "extra.flags",
        "after the flag",
    ),
    "a flag without its dashes": Edit(
        "[nodes]",
        '[extra]\nflags = ["sleep-on-idle"]\n[nodes]',
        "no-flag",
        "extra.flags",
        "begin with --",
    ),
    "a value for a switch": Edit(
        "[nodes]",
        '[extra]\nflags = ["--sleep-on-idle", "true"]\n[nodes]',
        "no-flag",
        "extra.flags",
        "takes no value",
    ),
    "a number in the environment": Edit(
        "[nodes]",
        "[extra.environment]\nOMP_NUM_THREADS = 2\n[nodes]",
        "wrong-type",
        "extra.environment.OMP_NUM_THREADS",
        "in quotes",
    ),
    "a plan that is not there": Edit(
        'plan = "auto"', 'plan = "plan.json"', "unusable", "comm.plan", "plan.json"
    ),
}


def told(path: Path, *more: str) -> list[dict[str, Any]]:
    """The problems of a dry run that has to be refused."""
    arguments = [str(path), "--dry-run", "--json", "--facts", str(facts(BASE)), *more]
    result = CliRunner().invoke(serve, arguments)
    assert result.exit_code == 1, result.output
    content = json.loads(result.stdout)
    assert content["accepted"] is False
    problems: list[dict[str, Any]] = content["problems"]
    return problems


@pytest.mark.parametrize("name", EDITS)
def test_refused_by_name(name: str, tmp_path: Path) -> None:
    edit = EDITS[name]
    text = recipe(BASE).read_text()
    assert text.count(edit.old) == 1
    path = tmp_path / "edited.toml"
    path.write_text(text.replace(edit.old, edit.new))
    (problem,) = told(path)
    assert (problem["code"], problem["key"]) == (edit.code, edit.key)
    assert problem["file"] == str(path)
    assert edit.remedy in problem["remedy"]
    arguments = [str(path), "--dry-run", "--facts", str(facts(BASE))]
    said = CliRunner().invoke(serve, arguments)
    assert said.exit_code == 1
    assert f"refused: [{edit.code}] {path}: {edit.key} = " in said.stderr


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("port = 30000", 'port = 30000\napi_key = "s3cret"', "listen.api_key"),
        ("[nodes]", '[secrets]\napi_key = "s3cret"\n[nodes]', "secrets"),
        ("[nodes]", '[extra]\nflags = ["--api-key=s3cret"]\n[nodes]', "extra.flags"),
        *(
            (
                "[nodes]",
                f'[extra.environment]\n{name} = "s3cret"\n[nodes]',
                f"extra.environment.{name}",
            )
            for name in ("OPENAI_KEY", "DB_PASSWD", "AWS_SECRET_ACCESS_KEY", "S3_CREDENTIALS")
        ),
        (
            "[nodes]",
            '[extra.environment]\nhttps_proxy = "http://me:s3cret@proxy:1"\n[nodes]',
            "extra.environment.https_proxy",
        ),
        ('path = "/srv/models/Kimi-K2.5"', 'path = "s3://me:s3cret@host/Kimi"', "model.path"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(old: str, new: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "edited.toml"
    path.write_text(recipe(BASE).read_text().replace(old, new))
    (problem,) = told(path)
    assert (problem["code"], problem["key"]) == ("secret", key)
    for more in ([], ["--json"]):
        arguments = [str(path), "--dry-run", "--facts", str(facts(BASE)), *more]
        assert "s3cret" not in CliRunner().invoke(serve, arguments).output


@pytest.mark.parametrize(
    "change", ["api_key=s3cret", "listen.api-key=s3cret", "x.y={key='s3cret'}"]
)
def test_nor_is_one_of_the_command_line(change: str) -> None:
    arguments = [str(recipe(BASE)), "--dry-run", "--facts", str(facts(BASE)), "--set", change]
    said = CliRunner().invoke(serve, arguments)
    assert said.exit_code == 1 and "s3cret" not in said.output


@pytest.mark.parametrize("table", ['{api_key = "s3cret"}', '[{deep = {token = "s3cret"}}]'])
def test_nor_is_one_in_a_table_that_has_another_name(table: str, tmp_path: Path) -> None:
    path = tmp_path / "edited.toml"
    path.write_text(recipe(BASE).read_text().replace("[nodes]", f"more = {table}\n[nodes]"))
    (problem,) = told(path)
    assert problem["code"] == "unknown-key" and "s3cret" not in str(problem)


def test_what_only_sounds_like_a_secret() -> None:
    found = load(
        recipe(BASE),
        [
            'extra.environment={TOKENIZERS_PARALLELISM = "false", MAX_TOKENS = "3"}',
            "extra.flags=['--tokenizer-path=x', '--gc-threshold', '-1']",
            "parsers.reasoning=auto",
        ],
    )
    assert found.extra.environment["MAX_TOKENS"] == "3"


@pytest.mark.parametrize("text", ["port = = 30000", "port = 30000\nport = 30001", 'port = "3'])
def test_a_line_that_is_no_toml_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "edited.toml"
    lines = recipe(BASE).read_text().replace("port = 30000", text).splitlines()
    path.write_text("\n".join(lines))
    number = max(at for at, line in enumerate(lines, 1) if line.startswith("port"))
    (problem,) = told(path)
    assert problem["code"] == "no-toml" and f"at line {number}, " in problem["remedy"]


def test_all_of_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "edited.toml"
    text = recipe(BASE).read_text()
    path.write_text(text.replace("port = 30000", "prot = 1").replace("tp_size = 8", "tp_size = 0"))
    assert [one["key"] for one in told(path)] == ["listen.prot", "nodes.tp_size"]


@pytest.mark.parametrize("change", ["nodes", "nodes=1", "a.b.c=1", ".rank=1"])
def test_a_change_that_names_no_key(change: str) -> None:
    (problem,) = told(recipe(BASE), "--set", change)
    assert problem["code"] == "bad-change"


def test_changes_are_typed() -> None:
    (problem,) = told(recipe(BASE), "--set", "nodes.rank='0'")
    assert (problem["code"], problem["key"]) == ("wrong-type", "nodes.rank")
    (problem,) = told(recipe(BASE), "--set", "nodes.rank=1")
    assert problem["code"] == "nodes" and "2" not in str(problem["value"])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (problem,) = told(tmp_path / "none.toml")
    assert problem["code"] == "unreadable"


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that is not refused would become the server, in place of these tests."""

    def started(*_: object) -> None:
        raise AssertionError("it would have been started")

    monkeypatch.setattr("os.execve", started)


def pair_recipe(folder: Path, pair: Pair, draft: Path | None = None, more: str = "") -> Path:
    path = folder / "pair.toml"
    path.write_text(
        f'[model]\npath = "{pair.target}"\ndevice = "cpu"\n{more}'
        f'[draft]\npath = "{draft or pair.draft}"\nnum_steps = 3\nnum_draft_tokens = 4\n'
        "[capture]\noutputs_of_layers = [1, 3, 5]\n[limits]\nmax_running_requests = 4\n"
    )
    return path


def test_other_layers_than_the_draft_says(tiny: Pair, tmp_path: Path) -> None:
    path = pair_recipe(tmp_path, tiny)
    result = CliRunner().invoke(serve, [str(path), "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    (problem,) = told(path, "--set", "capture.outputs_of_layers=[2, 3, 5]")
    assert problem["code"] == "capture-differs"
    assert "loop indices [3, 4, 6], not [2, 4, 6]" in problem["remedy"]


def test_a_draft_that_breaks_the_contract(tiny: Pair, tmp_path: Path) -> None:
    draft = copy(tiny.draft, tmp_path / "d", lambda c: c["eagle_config"].update({IDS: [5, 3, 1]}))
    (problem,) = told(pair_recipe(tmp_path, tiny, draft))
    assert problem["code"] == "ids-order" and problem["file"] == str(draft / "config.json")


def test_a_config_that_says_otherwise(tiny: Pair, tmp_path: Path) -> None:
    more = 'architecture = "Qwen3ForCausalLM"\nhidden_size = 7168\n'
    problems = told(pair_recipe(tmp_path, tiny, more=more))
    assert [one["code"] for one in problems] == ["model-differs"] * 2
    assert "LlamaForCausalLM" in problems[0]["remedy"]


def test_heads_that_only_the_config_tells(tiny: Pair, tmp_path: Path) -> None:
    (problem,) = told(pair_recipe(tmp_path, tiny), "--set", "nodes.tp_size=3")
    assert (problem["code"], problem["key"]) == ("heads", "nodes.tp_size")
    assert "16 attention heads" in problem["remedy"]


def test_the_file_of_secrets(tiny: Pair, tmp_path: Path) -> None:
    """A launch needs it; it has to hold a key, and not for everybody."""
    path, secrets = pair_recipe(tmp_path, tiny), tmp_path / "secrets.yaml"
    change = ["--set", "listen.host=0.0.0.0", "--set", f"listen.secrets={secrets}"]
    missing = CliRunner().invoke(serve, [str(path), *change])
    assert missing.exit_code == 1 and "[secrets]" in missing.stderr
    dry = CliRunner().invoke(serve, [str(path), *change, "--dry-run"])
    assert dry.exit_code == 0 and "secrets not checked" in dry.stderr
    secrets.write_text("log-level: info\n")
    secrets.chmod(0o600)
    (problem,) = told(path, *change)
    assert "api-key" in problem["remedy"]
    secrets.write_text("api-key: k\n")
    secrets.chmod(0o644)
    (problem,) = told(path, *change)
    assert "everybody can read it" in problem["remedy"]
    secrets.chmod(0o640)
    fine = CliRunner().invoke(serve, [str(path), *change, "--dry-run"])
    assert fine.exit_code == 0 and f"--config {secrets}" in fine.stdout
    assert "api-key" not in fine.output


def test_a_port_in_use(tiny: Pair, tmp_path: Path) -> None:
    """Found before anything is loaded, not after; a dry run does not look."""
    path = pair_recipe(tmp_path, tiny)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        started = CliRunner().invoke(serve, [str(path), "--set", f"listen.port={port}"])
        assert started.exit_code == 1
        assert f"refused: [port-in-use] {path}: listen.port = {port}: " in started.stderr
        assert told_nothing([str(path), "--set", f"listen.port={port}", "--dry-run"])


@pytest.mark.parametrize("host", ["198.51.100.7", "no-such-host.invalid"])
def test_an_address_of_another_host(host: str, tiny: Pair, tmp_path: Path) -> None:
    path, secrets = pair_recipe(tmp_path, tiny), tmp_path / "secrets.yaml"
    secrets.write_text("api-key: k\n")
    secrets.chmod(0o600)
    change = ["--set", f"listen.host={host}", "--set", f"listen.secrets={secrets}"]
    started = CliRunner().invoke(serve, [str(path), *change])
    assert started.exit_code == 1 and f"refused: [host] {path}: listen.host = " in started.stderr


def test_folders_that_are_not_there(tiny: Pair, tmp_path: Path) -> None:
    path = pair_recipe(tmp_path, Pair(tiny.target, tmp_path / "none"))
    started = CliRunner().invoke(serve, [str(path)])
    assert started.exit_code == 1
    assert f"refused: [not-there] {path}: draft.path = '{tmp_path / 'none'}': " in started.stderr
    assert told_nothing([str(path), "--dry-run"])


def told_nothing(arguments: list[str]) -> bool:
    result = CliRunner().invoke(serve, arguments)
    return result.exit_code == 0 and "refused" not in result.stderr


def test_facts_that_cannot_be_read(tmp_path: Path) -> None:
    arguments = [str(recipe(BASE)), "--dry-run", "--facts", str(tmp_path / "none.json")]
    result = CliRunner().invoke(serve, arguments)
    assert result.exit_code == 1 and "--facts" in result.stderr


def test_usage() -> None:
    base = str(recipe(BASE))
    for arguments in (["--dry-run"], ["--json"], [base, "--json"], [base, "--port", "30000"]):
        assert CliRunner().invoke(serve, arguments).exit_code == 2


def test_secrets_that_are_no_text(tiny: Pair, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.yaml"
    secrets.write_bytes(b"\xff\xfeapi-key: k\n")
    change = ["--set", "listen.host=0.0.0.0", "--set", f"listen.secrets={secrets}"]
    (problem,) = told(pair_recipe(tmp_path, tiny), *change)
    assert (problem["code"], problem["key"]) == ("secrets", "listen.secrets")
    assert problem["value"] == str(secrets) and "UTF-8" in problem["remedy"]


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b'{"text_config": 1}', b"5"])
@pytest.mark.parametrize("drafted", [True, False])
def test_a_config_that_is_none(tiny: Pair, tmp_path: Path, content: bytes, drafted: bool) -> None:
    target = copy(tiny.target, tmp_path / "t")
    (target / "config.json").write_bytes(content)
    path = pair_recipe(tmp_path, Pair(target, tiny.draft if drafted else tmp_path / "none"))
    problems = told(path)
    (problem,) = [one for one in problems if one["code"] == "model-unreadable"]
    assert (problem["key"], problem["value"]) == ("model.path", str(target))
    assert str(target / "config.json") in problem["remedy"]
