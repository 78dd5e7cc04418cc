"""Pods as people write them, whole: each with what is made of it, in one file to read."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hami_py.model import pods
from hami_py.model.pods.annotations import field_path
from unit.pods.build import Manifest, carried_out, read

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_result_of_each_pod(path: Path) -> None:
    written, expected = yaml.safe_load_all(path.read_text())
    admission = pods.admit(read(written))
    assert seen(admission) == {key: value for key, value in expected.items() if value}
    # From JSON it is the same as from YAML.
    assert pods.admit(pods.decode_pod(json.dumps(written))) == admission
    if not admission.refusals:
        done = carried_out(written, admission)
        again = pods.admit(read(done))
        assert (again.request, again.edits) == (admission.request, ())


def seen(admission: pods.Admission) -> Manifest:
    refused = [str(each) for each in admission.refusals]
    by_container: dict[str, dict[str, Any]] = {"limits": {}, "environment": {}, "removed": {}}
    for edit in admission.edits:
        by_container["limits"][edit.container] = dict(edit.limits)
        by_container["removed"][edit.container] = list(edit.environment.remove)
        by_container["environment"][edit.container] = {
            added.name: added.value if added.annotation is None else field_path(added.annotation)
            for added in edit.environment.add
        }
    found: Manifest = {
        name: {container: value for container, value in each.items() if value}
        for name, each in by_container.items()
    }
    if admission.request is not None:
        found["request"] = json.loads(pods.wire.encode(admission.request))
    found["removed_annotations"] = list(admission.remove_annotations)
    found["warnings"] = [str(each) for each in admission.warnings]
    if refused:
        # Such a pod is not made, so nothing is done to it.
        found = {"refusals": refused, "warnings": found["warnings"]}
    return {key: value for key, value in found.items() if value}
