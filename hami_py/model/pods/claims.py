"""Claims of DRA drivers (resource.k8s.io/v1): which part of which card a container has by them.

A claim has requests, and an allocation with a result for each device. A container uses a claim as a
whole, or one request of it. The amount is in the result, the card's UUID in the ResourceSlices of
the node. What Kubernetes does with claims: tests/cluster/findings.md.

A claim may have a share of ours in the parameters for a driver that allocates nothing:

    config:
      - opaque: {driver: hami.io, parameters: {cores: 30}}
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model.pods.decoding import ApiObject
from hami_py.model.pods.objects import (
    Container,
    ExtendedClaim,
    Metadata,
    Pod,
    PodStatus,
    Quantity,
)
from hami_py.model.pods.quantities import CountRule, count, whole_number

DRIVERS = frozenset({"gpu.nvidia.com"})
"""The drivers whose devices are cards."""

OURS = "hami.io"
"""The driver of our parameters."""

_CORES = CountRule("percent of the card's time", 1, 100, 30)

_MIB = 1 << 20


class Result(ApiObject, frozen=True):
    """``DeviceRequestAllocationResult``."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    admin_access: bool | None = None
    consumed_capacity: dict[str, Quantity] | None = None


class Opaque(ApiObject, frozen=True):
    """``OpaqueDeviceConfiguration``."""

    driver: str = ""
    parameters: dict[str, object] | None = None


class Configuration(ApiObject, frozen=True):
    """``DeviceAllocationConfiguration``."""

    requests: tuple[str, ...] | None = None
    opaque: Opaque | None = None


class Devices(ApiObject, frozen=True):
    """``DeviceAllocationResult``."""

    results: tuple[Result, ...] | None = None
    config: tuple[Configuration, ...] | None = None


class Allocation(ApiObject, frozen=True):
    """``AllocationResult``."""

    devices: Devices = Devices()


class ClaimStatus(ApiObject, frozen=True):
    """``ResourceClaimStatus``."""

    allocation: Allocation | None = None


class ResourceClaim(ApiObject, frozen=True):
    """``ResourceClaim``."""

    metadata: Metadata = Metadata()
    status: ClaimStatus = ClaimStatus()


class Attribute(ApiObject, frozen=True):
    """``DeviceAttribute``; only texts are read."""

    string: str | None = None


class Capacity(ApiObject, frozen=True):
    """``DeviceCapacity``."""

    value: Quantity = 0


class Device(ApiObject, frozen=True):
    """``Device``."""

    name: str = ""
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None


class Pool(ApiObject, frozen=True):
    """``ResourcePool``."""

    name: str = ""


class SliceSpec(ApiObject, frozen=True):
    """``ResourceSliceSpec``."""

    driver: str = ""
    pool: Pool = Pool()
    node_name: str | None = None
    devices: tuple[Device, ...] | None = None


class ResourceSlice(ApiObject, frozen=True):
    """``ResourceSlice``."""

    metadata: Metadata = Metadata()
    spec: SliceSpec = SliceSpec()


class Reference(NamedTuple):
    """A claim that a container uses, by its name; ``request`` is the only one of it, None = all."""

    claim: str
    request: str | None = None


@dataclass(frozen=True)
class Part:
    """The part of a card that another allocator has given a container.

    Attributes:
        card: the card's UUID.
        memory_mib: its memory; None = all of the card's.
        cores: percent of the card's time; 0 = no limit.
    """

    card: str
    memory_mib: int | None
    cores: int = 0


@dataclass(frozen=True)
class Amounts:
    """The parts of cards that another allocator has given a container.

    Attributes:
        owner: whose amounts they are: the UIDs of claims, with request and part. Containers with
            equal owners have them together, also those of several pods that share a claim.
        parts: one for each card.
    """

    owner: frozenset[tuple[str, str, str]]
    parts: tuple[Part, ...]


def references(pod: Pod, container: Container) -> tuple[Reference, ...]:
    """The claims that a container uses, also those that were made for extended resources.

    Raises:
        InvalidValue: a claim does not exist yet.
    """
    status = pod.status or PodStatus()
    names = {
        each.name: each.resource_claim_name
        for each in (*(pod.spec.resource_claims or ()), *(status.resource_claim_statuses or ()))
        if each.resource_claim_name
    }
    found = []
    for use in (container.resources and container.resources.claims) or ():
        if use.name not in names:
            fix = "the claim of this name is not made yet: wait for it"
            raise InvalidValue(f"container {container.name}: claim", use.name, fix)
        found.append(Reference(names[use.name], use.request))
    extended = status.extended_resource_claim_status or ExtendedClaim()
    for mapping in extended.request_mappings or ():
        if mapping.container_name == container.name:
            found.append(Reference(extended.resource_claim_name, mapping.request_name))
    return tuple(found)


def amounts(
    used: Iterable[Reference],
    claims: Mapping[str, ResourceClaim],
    slices: Iterable[ResourceSlice],
) -> Amounts | None:
    """The parts of cards that a container has by its claims; None = no card.

    Results for administrators (``adminAccess``) are left out: they are no part of a card.

    Args:
        used: the claims that it uses.
        claims: these claims by their names.
        slices: the ResourceSlices of the node.

    Raises:
        InvalidValue: a claim is not allocated, a result names a device that no slice has, or a
            share is wrong.
    """
    devices = {
        (each.spec.driver, each.spec.pool.name, device.name): device
        for each in slices
        for device in each.spec.devices or ()
    }
    owner, parts = set[tuple[str, str, str]](), dict[str, Part]()
    for name, request in used:
        claim = claims.get(name, ResourceClaim())
        allocation = claim.status.allocation
        if allocation is None:
            raise InvalidValue("claim", name, "it is not allocated: wait for the scheduler")
        for result in _results(request, allocation):
            device_key = f"{result.pool}/{result.device}/{result.share_id or ''}"
            key = (claim.metadata.uid or "", result.request, device_key)
            if key in owner:
                continue
            owner.add(key)
            device = devices.get((result.driver, result.pool, result.device))
            part = _part(name, result, device, _cores(name, result.request, allocation))
            before = parts.get(part.card)
            parts[part.card] = part if before is None else _sum(before, part)
    return Amounts(frozenset(owner), tuple(parts.values())) if parts else None


def _results(request: str | None, allocation: Allocation) -> Iterator[Result]:
    for result in allocation.devices.results or ():
        # A request with alternatives has results like `gpu/small`.
        is_used = request in (None, result.request, result.request.partition("/")[0])
        if is_used and result.driver in DRIVERS and not result.admin_access:
            yield result


def _part(claim: str, result: Result, device: Device | None, cores: int) -> Part:
    attribute = ((device and device.attributes) or {}).get("uuid")
    field = f"claim {claim}: request {result.request}"
    if device is None or attribute is None or not attribute.string:
        fix = "no ResourceSlice of the node has this device with its UUID: wait for the driver"
        raise InvalidValue(field, f"{result.pool}/{result.device}", fix)
    capacities = {name: each.value for name, each in (device.capacity or {}).items()}
    consumed, whole = result.consumed_capacity or {}, _amount(field, result, capacities, "memory")
    size = _amount(field, result, consumed, "memory")
    if not size and (shares := _amount(field, result, consumed, "shares")) and whole:
        # NVIDIA's driver may share a card by a number of equal shares, with memory 0 by default.
        size = whole * shares // (_amount(field, result, capacities, "shares") or shares)
    if size and size < _MIB:
        raise InvalidValue(field, str(size), "its memory must be 1Mi or more: see the driver")
    # An allocation of a whole card needs no limit.
    return Part(attribute.string, size // _MIB if size and size != whole else None, cores)


def _amount(field: str, result: Result, amounts: Mapping[str, Quantity], name: str) -> int:
    """A capacity, whose name may have the driver's domain; 0 = there is none."""
    written = amounts.get(name, amounts.get(f"{result.driver}/{name}", 0))
    amount = whole_number(written)
    if amount is None or amount < 0:
        raise InvalidValue(f"{field}: {name}", str(written), "it must be a number: see the driver")
    return amount


def _cores(claim: str, request: str, allocation: Allocation) -> int:
    """The share of a request; the claim's own comes after that of its class."""
    cores = 0
    for each in allocation.devices.config or ():
        is_ours = each.opaque is not None and each.opaque.driver == OURS
        applies = not each.requests or {request, request.partition("/")[0]} & {*each.requests}
        if each.opaque is not None and is_ours and applies:
            parameters: Mapping[str, object] = each.opaque.parameters or {}
            unknown = sorted(parameters.keys() - {"cores"})
            field = f"claim {claim}: parameters of {OURS}"
            if unknown:
                raise InvalidValue(f"{field}.{unknown[0]}", "", "write cores only")
            value = parameters.get("cores", 0)
            if not isinstance(value, int | str) or isinstance(value, bool):
                raise InvalidValue(f"{field}.cores", str(value), "write 1 to 100")
            cores = count(value, f"{field}.cores", _CORES)
    return cores


def _sum(one: Part, two: Part) -> Part:
    whole = one.memory_mib is None or two.memory_mib is None
    memory_mib = None if whole else (one.memory_mib or 0) + (two.memory_mib or 0)
    unlimited = not one.cores or not two.cores
    return Part(one.card, memory_mib, 0 if unlimited else min(100, one.cores + two.cores))
