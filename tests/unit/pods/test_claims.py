"""The amounts of claims, from objects as the API server of the findings returns them."""

import json
from typing import Any

import msgspec
import pytest

from hami_py.errors import InvalidValue
from hami_py.model.pods.claims import (
    Amounts,
    Part,
    Reference,
    ResourceClaim,
    ResourceSlice,
    amounts,
    references,
)
from hami_py.model.pods.objects import Pod

NVIDIA = "gpu.nvidia.com"
UUIDS = {"gpu-0": "GPU-a", "gpu-1": "GPU-b"}


def resource_slice(driver: str = NVIDIA) -> ResourceSlice:
    devices = [
        {
            "name": name,
            "attributes": {"uuid": {"string": uuid}, "productName": {"string": "A100"}},
            "capacity": {
                "memory": {"value": "40Gi", "requestPolicy": {"default": "40Gi"}},
                "shares": {"value": "4"},
            },
            "allowMultipleAllocations": True,
        }
        for name, uuid in UUIDS.items()
    ]
    spec = {"driver": driver, "nodeName": "n1", "pool": {"name": "n1"}, "devices": devices}
    return msgspec.json.decode(json.dumps({"spec": spec}), type=ResourceSlice)


def result(device: str = "gpu-0", memory: str | None = "4Gi", **more: Any) -> dict[str, Any]:
    consumed = {"consumedCapacity": {"memory": memory}} if memory else {}
    usual = {"request": "gpu", "driver": NVIDIA, "pool": "n1", "device": device}
    return {**usual, "shareID": "s", **consumed, **more}


def claim(
    *results: dict[str, Any], config: Any = None, uid: str = "u", allocated: bool = True
) -> ResourceClaim:
    devices = {"results": list(results), "config": config}
    status = {"allocation": {"devices": devices}} if allocated else {}
    written = {"metadata": {"name": "c", "uid": uid}, "status": status}
    return msgspec.json.decode(json.dumps(written), type=ResourceClaim)


def found(*claims: ResourceClaim, request: str | None = None) -> Amounts | None:
    named = {f"claim-{number}": each for number, each in enumerate(claims)}
    return amounts([Reference(name, request) for name in named], named, [resource_slice()])


def parts(*claims: ResourceClaim, request: str | None = None) -> tuple[Part, ...]:
    seen = found(*claims, request=request)
    assert seen is not None
    return seen.parts


def share(cores: object, source: str = "FromClaim", **more: Any) -> dict[str, Any]:
    return {
        "source": source,
        "opaque": {"driver": "hami.io", "parameters": {"cores": cores}},
        **more,
    }


def test_a_part_is_what_the_claim_has_consumed() -> None:
    assert parts(claim(result(memory="4Gi"))) == (Part("GPU-a", 4096),)
    assert parts(claim(result("gpu-1", "2Mi"))) == (Part("GPU-b", 2),)
    both = claim(result(memory="4Gi"), result("gpu-1", "2Gi", request="more"))
    assert parts(both) == (Part("GPU-a", 4096), Part("GPU-b", 2048))
    assert parts(both, request="more") == (Part("GPU-b", 2048),)
    two = (claim(result(memory="4Gi"), uid="u"), claim(result(memory="2Gi"), uid="v"))
    assert parts(*two) == (Part("GPU-a", 6144),), "two claims of one card add up"
    assert parts(two[0], two[0]) == (Part("GPU-a", 4096),), "a claim counts once"


def test_two_parts_of_a_card_in_one_request_add_up() -> None:
    parts_of_a = (result(memory="1Gi", shareID="a"), result(memory="1Gi", shareID="b"))
    assert parts(claim(*parts_of_a)) == (Part("GPU-a", 2048),)


@pytest.mark.parametrize(
    ("consumed", "mib"),
    [
        ({"gpu.nvidia.com/memory": "4Gi"}, 4096),
        ({"memory": "0"}, None),
        ({"memory": "0", "shares": "1"}, 10240),
        ({"memory": "0", "shares": "4"}, None),
        ({"memory": "1Gi", "shares": "1"}, 1024),
    ],
)
def test_a_part_may_be_a_number_of_shares(consumed: dict[str, str], mib: int | None) -> None:
    """NVIDIA's driver has them with a default memory of 0."""
    of = result(memory=None, consumedCapacity=consumed)
    assert parts(claim(of)) == (Part("GPU-a", mib),)


@pytest.mark.parametrize("memory", [None, "40Gi", "42949672960"])
def test_a_whole_card_has_no_limit(memory: str | None) -> None:
    assert parts(claim(result(memory=memory))) == (Part("GPU-a", None),)


def test_containers_with_the_same_requests_of_the_same_claims_have_one_owner() -> None:
    shared, other = claim(result()), claim(result(), uid="other")
    assert found(shared) == found(shared) != found(other)
    two = claim(result(), result("gpu-1", request="more"))
    whole, one = found(two), found(two, request="gpu")
    assert whole is not None and one is not None
    assert one.owner < whole.owner


def test_a_request_with_alternatives_is_used_by_its_name() -> None:
    small = claim(result(request="gpu/small"))
    assert parts(small, request="gpu") == (Part("GPU-a", 4096),)
    assert found(small, request="other") is None


def test_what_is_no_part_of_a_card_is_left_out() -> None:
    assert found(claim(result(driver="net.example.com"))) is None
    assert found(claim(result(adminAccess=True))) is None
    assert found() is None


def test_a_share_is_in_the_parameters_of_the_claim_or_its_class() -> None:
    of_class, of_claim = share(50, "FromClass"), share("30")
    others = {"opaque": {"driver": NVIDIA, "parameters": {"sharing": {}}}}
    for config, cores in (
        ([others], 0),
        ([of_class], 50),
        ([of_class, others, of_claim], 30),
        ([share(30, requests=["more"])], 0),
        ([share(30, requests=["gpu"])], 30),
    ):
        assert parts(claim(result(), config=config)) == (Part("GPU-a", 4096, cores),)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (share(0), "cores"),
        (share(101), "cores"),
        (share("much"), "cores"),
        (share(True), "cores"),
        (share([30]), "cores"),
        ({"opaque": {"driver": "hami.io", "parameters": {"core": 30}}}, "core"),
    ],
)
def test_a_wrong_share_is_refused_with_its_field(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue) as error:
        found(claim(result(), config=[config]))
    assert f"claim claim-0: parameters of hami.io.{field}" in str(error.value)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (claim(allocated=False), "it is not allocated"),
        (claim(result("gpu-7")), "no ResourceSlice of the node has this device"),
        (claim(result(memory="many")), "memory: .* it must be a number"),
        (claim(result(memory="1Ki")), "its memory must be 1Mi or more"),
    ],
)
def test_what_is_not_known_yet_is_an_error(of: ResourceClaim, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        found(of)


def test_a_pod_names_its_claims_in_three_ways() -> None:
    uses = [{"name": "mine"}, {"name": "made", "request": "gpu"}]
    written = {
        "spec": {
            "resourceClaims": [
                {"name": "mine", "resourceClaimName": "shared"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "unused", "resourceClaimTemplateName": "t"},
            ],
            "containers": [{"name": "main", "resources": {"claims": uses}}, {"name": "other"}],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "p-extended-y",
                "requestMappings": [
                    {
                        "containerName": "other",
                        "resourceName": "example.com/gpu",
                        "requestName": "container-1-request-0",
                    }
                ],
            },
        },
    }
    pod = msgspec.json.decode(json.dumps(written), type=Pod)
    main, other = pod.spec.containers or ()
    assert references(pod, main) == (Reference("shared"), Reference("p-made-x", "gpu"))
    assert references(pod, other) == (Reference("p-extended-y", "container-1-request-0"),)
    del written["status"]
    with pytest.raises(InvalidValue, match="container main: claim"):
        references(msgspec.json.decode(json.dumps(written), type=Pod), main)
