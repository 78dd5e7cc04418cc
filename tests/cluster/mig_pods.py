"""Pods on MIG instances, and what the stub, the node and the pods say of them."""

import json

from cluster.api import Object
from cluster.kubectl import kubectl
from cluster.limited_pods import FILL, MIB, Limited, command, run_in
from cluster.objects import NODES
from cluster.whole import WholeCluster
from support.mig import TABLES, MigCard, MigDevice
from support.running import run

MODELS = ("a100", "h100", "h200")

#: The memory of the smallest instance of an A100.
SMALLEST_MIB = 4864

#: GPU, profile, first memory slice.
Place = tuple[str, str, int]


def requesting(name: str, gpu: str, profile: str, model: str) -> Object:
    """A pod that this profile of the model fits, and no smaller one."""
    row = TABLES[model][profile]
    limited = Limited(name, row["memory_mib"] - 100, row["slices"] * 14)
    made = limited.pod("sleep infinity")
    made["metadata"]["annotations"] = {
        "nvidia.com/use-gpuuuid": gpu,
        "nvidia.com/vgpu-mode": "mig",
    }
    return made


def assigned(pod: Object) -> Place:
    assignment = json.loads(pod["metadata"]["annotations"]["hami.io/assignment"])
    ((card,),) = assignment["containers"].values()
    return card["card"], card["mig"]["profile"], card["mig"]["start"]


def there(cluster: WholeCluster) -> dict[Place, MigDevice | None]:
    """The instances of all cards by the stub, with their MIG devices."""
    found: dict[Place, MigDevice | None] = {}
    for index, gpu in enumerate(cluster.gpu.uuids()):
        card = MigCard(cluster.gpu, index)
        devices = {device.instance: device for device in card.devices()}
        for row in card.instances():
            found[gpu, row["profile"], row["start"]] = devices.get(row["id"])
    return found


def published(cluster: WholeCluster) -> dict[str, bool]:
    """Whether each card of the node is healthy, by UUID."""
    node = cluster.api.get(f"{NODES}/{cluster.node.name}")
    text = node["metadata"]["annotations"].get("hami.io/cards", '{"cards":[]}')
    return {card["uuid"]: card.get("healthy", True) for card in json.loads(text)["cards"]}


def fills_its_instance(cluster: WholeCluster, name: str, device: MigDevice) -> None:
    report = json.loads(run_in(cluster, name, FILL).splitlines()[-1])
    assert "CUDA_ERROR_OUT_OF_MEMORY" in report["error"]
    ledger = cluster.gpu.ledger()
    rows = [*ledger["mig_devices"], *ledger["cards"]]
    (used,) = (row for row in rows if row["groups"].get(name, {}).get("occupied", {}).get("peak"))
    assert used["uuid"] == device.uuid
    # Programs have it but for what the driver reserves.
    assert report["total"] == used["total"] > (SMALLEST_MIB - 16) * MIB
    assert used["refused"] > 0, "the instance refuses, and not the library"
    assert report["got"] < used["groups"][name]["occupied"]["peak"] <= used["total"]
    said = kubectl(cluster.control_plane, "events", "--for", f"pod/{name}").stdout
    assert "memory is enforced by mig and time by mig" in said


def sees_no_other(
    cluster: WholeCluster, name: str, device: MigDevice, devices: dict[str, MigDevice]
) -> None:
    """Neither its root nor a program that names another instance."""
    assert run_in(cluster, name, ["id", "-u"]).strip() == "0"
    assert len(run_in(cluster, name, ["ls", "/dev/nvidia-caps"]).split()) == 2
    other = next(uuid for uuid in devices if uuid != device.uuid)
    chosen = command(cluster, name, "env", f"CUDA_VISIBLE_DEVICES={other}", *FILL)
    done = run(chosen, {})
    assert done.code != 0 and "CUDA_ERROR_NO_DEVICE" in done.err, done
