"""The message for a user whose pod is refused: `kubectl`'s own words around ours."""

import json
from pathlib import Path

import pytest

from cluster import objects
from cluster.conftest import StartControlPlane
from cluster.kubectl import kubectl
from cluster.webhooks import ensure_policy, webhook

pytestmark = pytest.mark.programs("kubectl")


def test_a_refusal_has_field_value_reason_and_fix(
    control_plane: StartControlPlane, tmp_path: Path
) -> None:
    cluster = control_plane()
    preload = [{"name": "LD_PRELOAD", "value": "/x.so"}]
    limits = {"nvidia.com/gpu": 17}
    pods = {
        "bold": objects.pod(
            "bold", containers=[objects.container(limits={"nvidia.com/gpu": 1}, env=preload)]
        ),
        "many": objects.pod("many", limits),
        "forged": objects.pod("forged", metadata={"annotations": {"hami.io/assignment": "{}"}}),
    }
    said = {}
    ensure_policy(cluster)
    with webhook(cluster):
        for name, pod in pods.items():
            manifest = tmp_path / f"{name}.json"
            manifest.write_text(json.dumps(pod))
            done = kubectl(cluster, "create", "-f", manifest)
            assert done.returncode == 1
            said[name] = done.stderr.strip()
    ours = 'admission webhook "pods.hami.io" denied the request: '
    assert said["bold"].endswith(
        f'{ours}spec.containers[0].env[LD_PRELOAD]: "/x.so" is refused: it could load a library '
        "before the one that enforces the limit; leave it out"
    )
    assert said["many"].endswith(
        f'{ours}spec.containers[0].resources.limits[nvidia.com/gpu]: "17" is refused: it counts '
        "cards, from 0 to 16; write a number in between, like 1"
    )
    assert said["forged"].endswith(
        "metadata.annotations[hami.io/assignment]: only hami-py may write it; keep its "
        "value, and do not set it on a new pod"
    )
    for line in said.values():
        assert "\n" not in line
