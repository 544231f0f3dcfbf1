"""The manifests in `deploy/` are ones that KubeRay takes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from raystream.actors.client.head_watch import RAY_WAITS
from raystream.actors.client.submitting import CONTROLLER_NODE

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = "github.com/ray-project/kuberay/ray-operator@v1.5.0"
"""The module of Go in which KubeRay's schemas are."""
FETCH_SECONDS = 120.0


def manifests(*names: str) -> Iterator[dict[str, Any]]:
    for name in names or ("raycluster", "rayjob"):
        yield from yaml.safe_load_all((ROOT / "deploy" / f"{name}.yaml").read_text("utf-8"))


def schema_of(folder: Path, kind: str) -> dict[str, Any]:
    """The schema of a kind of resource. Fields that it does not know are errors, as they are for
    `kubectl`."""
    file = folder / "config/crd/bases" / f"ray.io_{kind.lower()}s.yaml"
    versions = yaml.load(file.read_text("utf-8"), yaml.CSafeLoader)["spec"]["versions"]
    (found,) = [v["schema"]["openAPIV3Schema"] for v in versions if v["name"] == "v1"]
    return dict(strict(found))


def strict(schema: Any) -> Any:
    """The same schema, in JSON Schema's words."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        known = {"metadata"} if schema["properties"].get("metadata") == {"type": "object"} else ()
        made["properties"] = {k: {} if k in known else v for k, v in made["properties"].items()}
        made.setdefault("additionalProperties", False)
    return made


@pytest.fixture(scope="module")
def kuberay() -> Path:
    """The folder of KubeRay's module, from the proxy for modules of Go."""
    if (go := shutil.which("go")) is None:
        pytest.skip("go is not installed")
    command = [go, "mod", "download", "-json", OPERATOR]
    try:
        got = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the proxy for modules of Go does not answer")
    if got.returncode:
        pytest.skip(f"KubeRay's schemas cannot be had: {got.stderr or got.stdout:.200}")
    return Path(json.loads(got.stdout)["Dir"])


def test_kuberay_takes_them(kuberay: Path) -> None:
    ours = [m for m in manifests() if m["apiVersion"] == "ray.io/v1"]
    assert [m["kind"] for m in ours] == ["RayCluster", "RayJob"]
    for manifest in ours:
        jsonschema.validate(manifest, schema_of(kuberay, manifest["kind"]))


def test_kuberay_would_refuse_what_is_wrong(kuberay: Path) -> None:
    cluster = next(manifests("raycluster"))
    schema = schema_of(kuberay, "RayCluster")
    cluster["spec"]["headGroupSpec"]["replicaz"] = 1
    with pytest.raises(jsonschema.ValidationError, match="replicaz"):
        jsonschema.validate(cluster, schema)


def test_what_the_head_knows_is_on_a_volume_and_the_others_wait_for_it() -> None:
    cluster, *claims = manifests("raycluster")
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    (container,) = head["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["RAY_gcs_storage"] == "rocksdb"
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    volumes = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in head["volumes"]}
    (store,) = [n for path, n in mounts.items() if env["RAY_gcs_storage_path"].startswith(path)]
    assert volumes[store] in {claim["metadata"]["name"] for claim in claims}
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert env[RAY_WAITS] == "600" and env["RAY_AUTH_MODE"] == "token"


def test_controllers_and_submitters_have_a_node() -> None:
    cluster, job = next(manifests("raycluster")), next(manifests("rayjob"))
    offered = [
        json.loads(group["rayStartParams"].get("resources", "'{}'").strip("'"))
        for group in cluster["spec"]["workerGroupSpecs"]
    ]
    assert {CONTROLLER_NODE: 1} in offered
    assert [*json.loads(job["spec"]["entrypointResources"])] == [CONTROLLER_NODE]
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
