"""A card of the stub GPU in MIG mode, changed as another program with root's rights changes it."""

import sys
import uuid
from dataclasses import dataclass
from typing import Any

from support.artifacts import ROOT
from support.stub import StubServer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The stub's profiles by the name of their table.
TABLES: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    (ROOT / "tests" / "stub" / "profiles" / "mig.toml").read_text()
)


@dataclass(frozen=True)
class MigDevice:
    """A compute instance: the IDs of it and of its GPU instance, and its UUID."""

    instance: int
    compute: int
    uuid: str


class MigCard:
    """The card with this index of the server; from `mode` on it is in MIG mode."""

    def __init__(self, server: StubServer, card: int = 0) -> None:
        self._server, self._card = server, card

    def mode(self, is_on: bool = True) -> "MigCard":
        """Set the mode."""
        self._call({"set-mode": {"is_on": is_on}})
        return self

    def create(self, profile: int, start: int | None = None) -> MigDevice:
        """A GPU instance of the profile with this ID, with one compute instance that fills it."""
        created = self.create_bare(profile, start)
        compute = self._call({"create-compute": {"instance": created}})["id"]
        return next(
            device
            for device in self.devices()
            if (device.instance, device.compute) == (created, compute)
        )

    def create_bare(self, profile: int, start: int | None = None) -> int:
        """A GPU instance without a compute instance; its ID."""
        call = {"create-instance": {"profile": profile, "start": start}}
        return int(self._call(call)["id"])

    def destroy(self, device: MigDevice) -> None:
        """Destroy the compute instance and then its GPU instance."""
        ids = {"instance": device.instance}
        self._call({"destroy-compute": {**ids, "compute": device.compute}})
        self._call({"destroy-instance": ids})

    def instances(self) -> list[dict[str, Any]]:
        """The GPU instances of now, with or without compute instances."""
        rows: list[dict[str, Any]] = self._call("read")["state"]["instances"]
        return rows

    def devices(self) -> list[MigDevice]:
        """The compute instances of now."""
        return [
            MigDevice(row["id"], part["id"], f"MIG-{uuid.UUID(bytes=bytes(part['uuid_bytes']))}")
            for row in self.instances()
            for part in row["computes"]
        ]

    def hold(self, instance: int | None = None, held: bool = True) -> None:
        """A process that no list shows has the card or a GPU instance open, or not any more."""
        self._order("mig-hold", instance=instance, held=held)

    def fail(self) -> None:
        """The next creation of a compute instance fails with UNKNOWN."""
        self._order("mig-fail")

    def reset(self) -> None:
        """Reset the card, as a reboot does with every card."""
        self._order("reset")

    def _call(self, call: Any) -> dict[str, Any]:
        return self._order("mig", call=call)

    def _order(self, command: str, **fields: Any) -> dict[str, Any]:
        return self._server.control({"command": command, "card": self._card, **fields})
