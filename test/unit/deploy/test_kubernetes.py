"""The manifests for two nodes: their schemas, and that each node starts its part of one recipe."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from kit import schemas
from kit.recipes import RECIPES, ROOT, facts
from sglang_spec.cli import main

NAME = "kimi-k2.5-h200"
# Fields of LeaderWorkerSet v1 and what they may hold, read off its API types; its CRD is no part of
# the packages of schemas.
SPEC = {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"}
TEMPLATE = {
    "leaderTemplate",
    "workerTemplate",
    "size",
    "restartPolicy",
    "subGroupPolicy",
    "volumeClaimTemplates",
    "persistentVolumeClaimRetentionPolicy",
}
STARTUP = {"LeaderCreated", "LeaderReady"}
RESTART = {"Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"}


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    text = (ROOT / "deploy/kubernetes/two-nodes.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def pod(documents: dict[str, Any]) -> Any:
    return documents["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]


def test_fields_of_the_set(documents: dict[str, Any]) -> None:
    group = documents["LeaderWorkerSet"]
    assert group["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    spec, template = group["spec"], group["spec"]["leaderWorkerTemplate"]
    assert set(spec) <= SPEC and set(template) <= TEMPLATE
    assert spec["startupPolicy"] in STARTUP and template["restartPolicy"] in RESTART
    assert template["size"] == 2


def test_schemas_of_pod_and_service(documents: dict[str, Any], pod: Any) -> None:
    schema = schemas.kubernetes("core.v1.Pod")
    whole = {"apiVersion": "v1", "kind": "Pod", **pod}
    jsonschema.validate(whole, schema)
    jsonschema.validate(documents["Service"], schemas.kubernetes("core.v1.Service"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**whole, "spec": {**pod["spec"], "volums": []}}, schema)


@pytest.mark.parametrize("index", range(2))
def test_each_node_starts_its_part(pod: Any, index: int) -> None:
    (container,) = pod["spec"]["containers"]
    injected = {"$(LWS_WORKER_INDEX)": str(index), "$(LWS_LEADER_ADDRESS)": "kimi-k2-5-0.kimi"}
    words = []
    for word in container["args"]:
        for name, value in injected.items():
            word = word.replace(name, value)
        words.append(word.replace("/opt/sglang-spec/recipes", str(RECIPES)))
    result = CliRunner().invoke(main, [*words, "--dry-run", "--facts", str(facts(NAME))])
    assert result.exit_code == 0, result.output
    for flag in ("--nnodes 2", f"--node-rank {index}", "--tp-size 16"):
        assert flag in result.stdout
    assert "--dist-init-addr kimi-k2-5-0.kimi:20000" in result.stdout


def test_ready_means_ready(pod: Any) -> None:
    (container,) = pod["spec"]["containers"]
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/ready", "port": "http"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert pod["spec"]["terminationGracePeriodSeconds"] >= 600


def test_mounts_and_sandbox(pod: Any) -> None:
    (container,) = pod["spec"]["containers"]
    volumes = {one["name"] for one in pod["spec"]["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"]


def test_clients_reach_the_leader(documents: dict[str, Any]) -> None:
    name = documents["LeaderWorkerSet"]["metadata"]["name"]
    assert documents["Service"]["spec"]["selector"] == {
        "leaderworkerset.sigs.k8s.io/name": name,
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }
    assert "Secret" not in documents
