"""Volumes at, above and inside the paths that enforce a container's limits, on a real kubelet.

A volume may lead to such a path through a symbolic link, in the image or in another volume, which
the webhook cannot see. Each pod here takes all the memory that it gets. Either it keeps its limit,
by the stub's ledger, or it does not start, and its events have our reason.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import image_layers, images, waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.images import Image
from cluster.limited_pods import FILL, MIB, Limited, install
from cluster.objects import PODS
from cluster.whole import WholeCluster

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(600)]

LIMIT_MIB = 1500

#: Why a container did not start: the hook's line. The runtime itself may fail before, at a mount.
OURS = re.compile(r"hami-py: the container would start without its GPU limits: [^\n]*")

#: The client with links, as an image may have them.
LINKED = "docker.io/hami-py/linked:test"
LINKS = {
    "root": "/",
    "etc": "/etc",
    "usr": "../usr",
    "local": "/usr/local",
    "hami": "/usr/local/hami",
    "limits": "../usr/local/hami/limits",
    "library": "/usr/local/hami/libvgpu.so",
    "preload": "/etc/ld.so.preload",
    "proc": "/proc/self/root",
}

#: For pods that the webhook does not see.
UNSEEN = "/api/v1/namespaces/unseen/pods"


def linked() -> Image:
    client = next(each for each in images.whole() if each.name == images.CLIENT)

    def fill(layer: Path) -> None:
        (layer / "links").mkdir()
        for name, target in LINKS.items():
            (layer / "links" / name).symlink_to(target)

    layer = image_layers.files("links", [str(sorted(LINKS.items()))], fill)
    return Image(LINKED, [*client.layers, layer], client.config)


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> Iterator[WholeCluster]:
    cluster = whole_cluster(cards="a100", wanted=[*images.whole(), linked()])
    install(cluster)
    labels = {"hami.io/webhook": "ignore"}
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "unseen", "labels": labels}})
    accounts = "/api/v1/namespaces/unseen/serviceaccounts"
    waiting.until(lambda: cluster.api.list(accounts), "its account exists")
    yield cluster


def mounting(name: str, *paths: str, script: str = "", **fields: object) -> Object:
    """A pod that mounts an empty volume at each of these paths, and then takes all memory.

    Its init container, which has no rights and no card, runs the script first, with the volumes at
    the same paths, but for the last one.
    """
    pod = Limited(name, LIMIT_MIB, 0).pod(" ".join(FILL))
    (main,) = pod["spec"]["containers"]
    volumes = [{"name": f"v{index}", "emptyDir": {}} for index in range(len(paths))]
    mounts = [{"name": f"v{index}", "mountPath": path} for index, path in enumerate(paths)]
    main.update({"image": LINKED, "volumeMounts": mounts, **fields})
    pod["spec"]["volumes"] = volumes
    if script:
        plain = {**main, "name": "first", "resources": {}, "volumeMounts": mounts[:-1]}
        plain["command"] = ["/bin/sh", "-euc", script]
        plain["securityContext"] = {
            "runAsUser": 1000,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        pod["spec"]["initContainers"] = [plain]
    return pod


def outcome(cluster: WholeCluster, pod: Object, pods: str = PODS) -> str | None:
    """None: it ran, and kept its limit. Otherwise why it did not start, by its events."""
    name = pod["metadata"]["name"]

    def look() -> Object | None:
        found: Object = cluster.api.get(f"{pods}/{name}")
        return found if found["status"].get("phase") in ("Succeeded", "Failed") else None

    ended = waiting.until(look, f"pod {name} has ended\n{cluster.state}", 240.0)
    groups = cluster.gpu.ledger()["cards"][0]["groups"]
    peak = groups[name]["occupied"]["peak"] if name in groups else 0
    print(f"{name}: {ended['status']['phase']}, {peak // MIB} MiB")
    assert peak <= LIMIT_MIB * MIB, f"{name} held {peak // MIB} of {LIMIT_MIB} MiB"
    if ended["status"]["phase"] == "Succeeded":
        assert peak > (LIMIT_MIB - 256) * MIB, "it has used its limit"
        return None
    assert peak == 0
    events = cluster.api.list(f"{pods.removesuffix('/pods')}/events")
    about = [each for each in events if each["involvedObject"]["name"] == name]
    told = [each["message"] for each in about if each["reason"] == "Failed"]
    assert told, about
    return str(next((reason for each in told for reason in OURS.findall(each)), told[0]))


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("etc", "/etc", "/etc/ld.so.preload is in the mount at /etc; mount no volume there"),
        ("slot", "/usr/local/hami", "/usr/local/hami is not what hami-py has mounted there"),
    ],
)
def test_a_link_that_an_init_container_makes_lifts_no_limit(
    cluster: WholeCluster, name: str, target: str, reason: str
) -> None:
    """The path is deeper than ours, so the runtime mounts it later, over ours."""
    link = f"mkdir -p /data/a/b/c && ln -s {target} /data/a/b/c/l"
    pod = mounting(f"link-{name}", "/data", "/data/a/b/c/l", script=link)
    create_soon(cluster.control_plane, pod)
    assert reason in (outcome(cluster, pod) or "")


def test_a_volume_that_leads_elsewhere_changes_nothing(cluster: WholeCluster) -> None:
    link = "mkdir -p /data/a && ln -s /srv /data/a/l"
    pod = mounting("elsewhere", "/data", "/data/a/l", script=link)
    create_soon(cluster.control_plane, pod)
    assert outcome(cluster, pod) is None


#: How a path may be written. The webhook refuses most of them; here it does not see the pods.
SPELLINGS = [
    "/",
    "/usr/local/hami",
    "/usr/local/hami/",
    "//usr///local//hami",
    "/./usr/local/./hami/.",
    "/usr/local/x/../hami",
    "/../../usr/local/hami",
    "usr/local/hami",
    "/usr/local",
    "/usr/local/",
    "/usr/local/hami/..",
    "/etc/",
    "./etc",
    "/proc/self/root/usr/local/hami",
    "/proc/1/root/usr/local/hami",
    "/proc/thread-self/root/etc",
    "/proc/self/cwd/usr/local/hami",
    *(f"/links/{name}" for name in ("root", "etc", "usr", "local", "hami", "proc")),
    "/links/root/etc",
    "/links/usr/local",
    "/links/local/hami",
    "/links/etc/.",
    "/links/proc/usr/local/hami",
    "/links/root/links/root/etc",
    "/links/usr/../usr/local/hami",
]

#: Files, which the runtime mounts at a path of a file; the volume's part of that name is mounted.
FILES = [
    "/usr/local/hami/limits",
    "/usr/local/hami/grants",
    "/usr/local/hami/account",
    "/usr/local/hami/libvgpu.so",
    "/usr/local/hami//limits/",
    "/etc/ld.so.preload",
    "/proc/self/root/etc/ld.so.preload",
    "/links/limits",
    "/links/library",
    "/links/preload",
    "/links/etc/ld.so.preload",
    "/links/hami/account",
]

KINDS: dict[str, Object] = {
    "memory": {"emptyDir": {"medium": "Memory"}},
    "config": {"configMap": {"name": "files"}},
    "secret": {"secret": {"secretName": "files"}},
    "fields": {
        "downwardAPI": {"items": [{"path": "f", "fieldRef": {"fieldPath": "metadata.name"}}]}
    },
    "all": {"projected": {"sources": [{"configMap": {"name": "files"}}]}},
    "host": {"hostPath": {"path": "/tmp"}},  # noqa: S108
}


def table() -> Iterator[Object]:
    """Pods that mount something over or around our paths, with links and without."""
    for index, path in enumerate(SPELLINGS):
        yield mounting(f"spelling-{index}", path)
    for index, path in enumerate(FILES):
        pod = mounting(f"file-{index}", path)
        pod["spec"]["volumes"] = [{"name": "v0", **KINDS["config"]}]
        pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = "f"
        yield pod
    for name, volume in KINDS.items():
        for where, path in (("slot", "/usr/local/hami"), ("link", "/links/etc")):
            pod = mounting(f"{name}-{where}", path)
            pod["spec"]["volumes"] = [{"name": "v0", **volume}]
            yield pod
    for index, path in enumerate(
        ("/etc/ld.so.preload", "/links/preload", "/usr/local/hami/limits")
    ):
        yield mounting(f"message-{index}", "/data", terminationMessagePath=path)
    for target in ("/", "/etc", "/usr", "/usr/local", "/usr/local/hami", "../../etc"):
        link = f"mkdir -p /data/a/b && ln -s {target} /data/a/b/l"
        name = f"made-{target.strip('./').replace('/', '-') or 'root'}-{len(target)}"
        yield mounting(name, "/data", "/data/a/b/l", script=link)
        yield mounting(f"{name}-in", "/data", "/data/a/b/l/x", script=link)


@pytest.mark.tier("torture")
@pytest.mark.timeout(1800)
def test_no_volume_lifts_a_limit(cluster: WholeCluster) -> None:
    """The hook alone is tested: the webhook does not see these pods."""
    files = {"metadata": {"name": "files"}, "data": {"f": "aGFtaQ=="}}
    for kind in ("configmaps", "secrets"):
        cluster.api.create(f"/api/v1/namespaces/unseen/{kind}", files)
    pods = list(table())
    assert len({pod["metadata"]["name"] for pod in pods}) == len(pods)
    for pod in pods:
        pod["metadata"]["labels"] = {"hami.io/pod": "true"}
        pod["spec"]["schedulerName"] = "hami-scheduler"
        cluster.api.create(UNSEEN, pod)
    failed = []
    for pod in pods:
        try:
            print(outcome(cluster, pod, UNSEEN))
        except AssertionError as error:
            failed.append(f"{pod['metadata']['name']}: {error}")
    assert failed == []
