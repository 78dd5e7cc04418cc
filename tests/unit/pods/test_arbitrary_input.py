"""Any input gets a result or an InvalidValue on one line, never another error."""

import copy
import json
import random
from typing import Any

import msgspec
import pytest

from hami_py.errors import HamiError, InvalidValue
from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from unit.pods.build import Manifest, container, manifest

SETTINGS = PodSettings(profiles=(HAMI, ALIYUN))
HUGE = 10**5000
"""Python writes no number of so many digits."""
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    1 << 70,
    HUGE,
    "",
    "\n",
    "\x00",
    "٣",
    "x" * 100_000,
    "GPU-\ud800".encode("utf-8", "replace").decode(),
    "a\nb",
    [],
    [[]],
    {},
    {"": ""},
    {"a\nb": "c\nd"},
    {"name": "x"},
    [{"name": "train"}],
]


def whole() -> Manifest:
    """A pod with something in every field that is read."""
    names = [*HAMI.pod_annotations, "hami.io/assignment", "hami.io/gpumem.train"]
    own = container(
        limits={"gpu": 1, "gpumem": 3000, "gpucores": 30, "priority": 0},
        requests={"gpu": 1},
        env={"CUDA_DEVICE_MEMORY_LIMIT": "1g", "NVIDIA_VISIBLE_DEVICES": "all", "LD_PRELOAD": ""},
        securityContext={"privileged": False, "capabilities": {"add": ["NET_ADMIN"]}},
        volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": False}],
    )
    made = manifest(
        own,
        init=(container("warm", limits={"gpumem-percentage": 50}, restartPolicy="Always"),),
        annotations=dict.fromkeys(names, ""),
        labels={"aliyun.com/gpu-count": "2"},
        volumes=[{"name": "v", "hostPath": {"path": "/data"}}],
        nodeName="n1",
        hostPID=False,
        priority=1,
    )
    made["status"] = {"phase": "Running", "conditions": [{"type": "Initialized"}]}
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else []
    items = enumerate(value) if isinstance(value, list) else items
    return found + [deep for key, each in items for deep in places(each, (*path, key))]


def spoiled(made: Manifest, chosen: random.Random) -> Manifest:
    """Odd values, and odd names, at one to three places."""
    for _ in range(chosen.randrange(1, 4)):
        *path, last = chosen.choice(places(made) or [("metadata",)])
        target: Any = made
        for key in path:
            target = target[key]
        odd = copy.deepcopy(chosen.choice(ODD))
        if isinstance(target, dict) and isinstance(odd, str) and chosen.random() < 0.2:
            target[odd] = target.pop(last)
        else:
            target[last] = odd
    return made


def look(pod: pods.Pod) -> None:
    admission = pods.admit(pod, SETTINGS)
    for finding in admission.findings:
        assert str(finding).isprintable()
        assert len(str(finding)) < 1000
        assert finding.fix
    if admission.request is not None:
        pods.wire.encode(admission.request)
    pods.assignment_of(pod)


def test_random_input() -> None:
    chosen = random.Random(5)  # noqa: S311
    answered = refused = 0
    for _ in range(3000):
        made = spoiled(whole(), chosen)
        for read in (pods.decode_pod.convert, lambda m: pods.decode_pod(json_of(m))):
            try:
                look(read(made))
                answered += 1
            except HamiError as error:
                refused += 1
                assert str(error).isprintable()
                assert len(str(error)) < 1000
    assert answered > 200
    assert refused > 200


def json_of(made: Manifest) -> str:
    """Of what can be written as such."""
    return "{}" if any(value is HUGE for value in walked(made)) else json.dumps(made)


def walked(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(deep for each in inner for deep in walked(each))]


def test_truncated_input() -> None:
    text = json.dumps(whole()).encode()
    for end in range(len(text)):
        with pytest.raises(InvalidValue):
            pods.decode_pod(text[:end])


def test_input_with_a_changed_byte() -> None:
    chosen = random.Random(6)  # noqa: S311
    text = msgspec.json.encode(whole())
    for _ in range(3000):
        changed = bytearray(text)
        changed[chosen.randrange(len(text))] = chosen.randrange(256)
        try:
            look(pods.decode_pod(bytes(changed)))
        except HamiError as error:
            assert str(error).isprintable()


@pytest.mark.parametrize("digits", [20, 100, 5000, 100_000])
def test_a_number_of_many_digits_is_too_large(digits: int) -> None:
    text = '{"spec":{"containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":%s}}}]}}'
    with pytest.raises(InvalidValue):
        pods.read_request(pods.decode_pod(text % ("9" * digits)))
