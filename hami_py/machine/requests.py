"""The requests of users, as JSON: ``{"do": "create", "limits": {"memory": 4294967296}}``.

An answer has what was asked for, or ``error``: the name of the error's type and its parts, from
which the client makes the same error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, TypeAlias

import msgspec

from hami_py import errors
from hami_py.errors import HamiError, InvalidValue, StateError
from hami_py.machine.containers import SliceDevices
from hami_py.machine.default_slices import DEFAULT
from hami_py.machine.listener import LARGEST, Peer
from hami_py.machine.overview import Overview
from hami_py.machine.register import Register
from hami_py.machine.usage import Usage
from hami_py.model import WHOLE, LimitRequest, check_name
from hami_py.model.request import UNLIMITED
from hami_py.node.ledger import Entry

_log = logging.getLogger(__name__)

PAGE = 64 << 10
"""Bytes of a list in one answer; the kernel's limit of a packet is about 200 KiB. Of a slice with
more processes than fit, some are shown."""


class _Request(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag=str.lower
):
    pass


class Create(_Request, frozen=True):
    """A new slice, which the peer holds: ``slices.SliceRequest``."""

    limits: LimitRequest = LimitRequest()
    command: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    name: str | None = None
    keep: bool = False
    gang: str | None = None
    around: tuple[str, ...] = ()


class Hold(_Request, frozen=True):
    """Hold a slice, by name or id."""

    slice: str


class Release(_Request, frozen=True):
    """Hold it no longer."""

    slice: str


class Remove(_Request, frozen=True):
    """End a slice, also one that is kept."""

    slice: str


class Set(_Request, frozen=True):
    """Change the limits of a slice."""

    slice: str
    limits: LimitRequest


class List(_Request, frozen=True):
    """The user's slices, oldest first; or with ``everyone`` all that the user may see.

    An answer has some of them, and ``after`` for the request for those that follow.
    """

    everyone: bool = False
    after: tuple[str, str] | None = None


class Devices(_Request, frozen=True):
    """The kept slices that the user may see, as devices of containers."""


class Job(_Request, frozen=True):
    """Start the slice of a user's job with n of N parts of each card; without cards, end it.

    Only root may ask. Cards are named by index or UUID.
    """

    job: int
    uid: int = 0
    cards: dict[str, tuple[int, int]] = {}


class Account(_Request, frozen=True):
    """Lines of usage that the user may see, from a day on.

    An answer has some of them, and ``after`` for the request for those that follow.
    """

    since: str
    user: str | None = None
    after: tuple[str, Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]] | None = None


Request: TypeAlias = Create | Hold | Release | Remove | Set | List | Account | Devices | Job


class Answers:
    """Answers requests.

    Args:
        register: the slices.
        overview: describes them.
        usage: what they have used.
        devices: the kept ones as devices of containers.
    """

    def __init__(
        self, register: Register, overview: Overview, usage: Usage, devices: SliceDevices
    ) -> None:
        self._register, self._devices = register, devices
        self._overview, self._usage = overview, usage
        self._decoder = msgspec.json.Decoder(Request)

    def answer(self, peer: Peer, packet: bytes) -> bytes:
        """The answer to a request, also to one that is refused or fails."""
        if packet == DEFAULT.encode():
            return self._default(peer)
        try:
            return msgspec.json.encode(self._done(peer, packet))
        except HamiError as error:
            return _refusal(error)
        except Exception:
            _log.exception("a request of user %d", peer.uid)
            fix = "its log has the reason: journalctl -u hami-machine"
            return _refusal(errors.StateError("hami machine", "the request failed", fix))

    def _default(self, peer: Peer) -> bytes:
        """The answer to the library's request for the default slice of the peer's user."""
        try:
            return self._register.default(peer.uid).encode()
        except HamiError as error:
            return str(error).encode(errors="replace")
        except Exception:
            _log.exception("the default slice of user %d", peer.uid)
            return b"the service's log has the reason: journalctl -u hami-machine"

    def _done(self, peer: Peer, packet: bytes) -> dict[str, object]:
        register, request = self._register, self._decoded(packet)
        if isinstance(request, Create | Set):
            _check(request.limits)
        match request:
            case Create():
                if request.name is not None:
                    check_name(request.name)
                if request.gang is not None:
                    check_name(request.gang, "gang")
                directory, notes = register.create(
                    peer,
                    request.limits,
                    command=request.command,
                    devices=request.devices,
                    name=request.name,
                    keep=request.keep,
                    gang=request.gang,
                    around=request.around,
                )
                if request.keep:
                    self._update_devices()
                return {"directory": str(directory), "notes": notes}
            case Hold():
                return {"directory": str(register.hold(peer, request.slice))}
            case Release():
                register.release(peer, request.slice)
            case Remove():
                register.remove(peer, request.slice)
                self._update_devices()
            case Set():
                return {"notes": register.set_limits(peer, request.slice, request.limits)}
            case List() | Account() | Devices():
                return self._listed(peer, request)
            case Job() if peer.uid:
                raise StateError("job", "only root says what it has", "submit it to Slurm")
            case Job():
                register.set_job(request.job, request.uid, request.cards)
        return {}

    def _listed(self, peer: Peer, request: List | Account | Devices) -> dict[str, object]:
        register = self._register
        if isinstance(request, List):
            return self._page(register.visible(peer, everyone=request.everyone), request.after)
        if isinstance(request, Devices):
            self._devices.update()
            return {"devices": self._devices.devices(register.visible(peer))}
        sees_all, user = register.sees_all(peer), request.user
        return self._usage.page(
            request.since,
            request.after,
            lambda line: (sees_all or line.uid == peer.uid) and user in (None, line.user),
        )

    def _update_devices(self) -> None:
        """Let a container start with a slice right after it was made."""
        # The service tries again each second, and logs the reason.
        with suppress(HamiError):
            self._devices.update()

    def _page(self, entries: Iterable[Entry], after: tuple[str, str] | None) -> dict[str, object]:
        """The descriptions of slices that fit an answer."""
        room, shown, last = PAGE, list[msgspec.Raw](), after
        for at, entry in sorted(
            ((_place(each), each) for each in entries), key=lambda pair: pair[0]
        ):
            if after is not None and at <= after:
                continue
            info = self._overview.of(entry)
            if info.damage is not None and not info.directory.exists():
                continue
            text = msgspec.json.encode(info, enc_hook=str)
            while len(text) > PAGE and info.processes:
                info = replace(info, processes=info.processes[: len(info.processes) // 2])
                text = msgspec.json.encode(info, enc_hook=str)
            room -= len(text)
            if shown and room < 0:
                return {"slices": shown, "after": last}
            shown.append(msgspec.Raw(text))
            last = at
        return {"slices": shown, "after": None}

    def _decoded(self, packet: bytes) -> Request:
        fix = "ask with the `hami` of the same version as the service's"
        if len(packet) > LARGEST:
            raise InvalidValue("request", f"{len(packet)} bytes", f"at most {LARGEST}; {fix}")
        try:
            found: Request = self._decoder.decode(packet)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            text = packet.decode(errors="replace")
            raise InvalidValue("request", text, f"{error}; {fix}") from error
        return found


def _check(limits: LimitRequest) -> None:
    """Refuse numbers that no option has."""
    for field, found, most in (
        ("gpumem", limits.memory, UNLIMITED),
        ("gpucores", limits.share, WHOLE),
    ):
        for value in found.values() if isinstance(found, Mapping) else (found,):
            if value is not None and not 1 <= value <= most:
                raise InvalidValue(field, str(value), f"write a number from 1 to {most}")


def _refusal(error: HamiError) -> bytes:
    kind = type(error).__name__
    return msgspec.json.encode({"error": {"kind": kind, "args": list(map(_plain, error.args))}})


def _plain(part: object) -> object:
    return part if isinstance(part, (str, int)) else list(map(_plain, part))  # type: ignore[call-overload]


def _place(entry: Entry) -> tuple[str, str]:
    """Where a slice is in the list."""
    return str(entry.run.record.get("created")) if entry.run is not None else "", entry.slot
