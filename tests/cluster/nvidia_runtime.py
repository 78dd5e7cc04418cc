"""Does to a container what NVIDIA's container runtime does: it gets the devices of its environment.

Called before runc creates a container, with a CDI specification and the container's configuration.
Of CDI's edits it knows those that the specification of `node_gpu` has.

    python nvidia_runtime.py SPECIFICATION BUNDLE/config.json
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

_VARIABLE = "NVIDIA_VISIBLE_DEVICES="

#: Values that name no device.
_NONE = ("", "none", "void")


def inject(config: dict[str, Any], specification: dict[str, Any]) -> None:
    """Change an OCI configuration as these devices' edits say.

    Raises:
        KeyError: there is no such device.
    """
    # The last one counts.
    values = [v.removeprefix(_VARIABLE) for v in config["process"]["env"] if _VARIABLE in v]
    if values[-1] in _NONE:
        return
    devices = {each["name"]: each["containerEdits"] for each in specification["devices"]}
    edits = [devices[name] for name in values[-1].split(",")]
    for edit in [specification["containerEdits"], *edits]:
        config["process"]["env"] += edit.get("env", ())
        for mount in edit.get("mounts", ()):
            config["mounts"].append(
                {
                    "source": mount["hostPath"],
                    "destination": mount["containerPath"],
                    "type": "bind",
                    "options": mount["options"],
                }
            )
        for node in edit.get("deviceNodes", ()):
            _add_device(config["linux"], node["path"], Path(node["hostPath"]).stat().st_rdev)


def _add_device(linux: dict[str, Any], path: str, number: int) -> None:
    device = {"type": "c", "major": os.major(number), "minor": os.minor(number)}
    linux.setdefault("devices", []).append({**device, "path": path, "fileMode": 0o666})
    linux["resources"].setdefault("devices", []).append({**device, "allow": True, "access": "rwm"})


def main() -> None:
    specification, bundle = map(Path, sys.argv[1:])
    config = json.loads(bundle.read_text())
    inject(config, json.loads(specification.read_text()))
    bundle.write_text(json.dumps(config))


if __name__ == "__main__":
    main()
