"""What other webhooks made of a pod after ours had it.

The API server asks mutating webhooks in the order of their configurations' names. Who is asked
after us may undo what we did, or ask for a card that nobody asked for before; then we are not asked
to mutate at all, not even again (``reinvocationPolicy`` is for who was asked). Such a pod would go
to a scheduler that knows no cards, get none from the kubelet, or have what we take away. So who
validates, which is when all of them are done, refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hami_py.model.pods import Admission, PodSettings, objects
from hami_py.model.pods.admission.findings import Finding
from hami_py.model.pods.annotations import LABELS

__all__ = ["undone"]

_FIX = (
    "another webhook changed it after hami-webhook was asked: give that one's configuration a name "
    "that comes before hami's in the alphabet"
)


def undone(pod: objects.Pod, admission: Admission, settings: PodSettings) -> Iterator[Finding]:
    """What a mutated pod would have, or not have, whatever else the settings are by now.

    Args:
        pod: as all webhooks have left it.
        admission: what would be done with it now.
        settings: how it was judged.
    """
    if admission.request is None:
        return
    for key, value in LABELS.items():
        if pod.labels.get(key) != value:
            yield _late(f"metadata.labels[{key}]", pod.labels.get(key, ""), f"it is {value}")
    theirs = pod.spec.scheduler_name or ""
    if settings.schedulers and theirs not in settings.schedulers:
        fix = f"it would be bound without cards; it is {settings.schedulers[0]}"
        yield _late("spec.schedulerName", theirs, fix)
    cards = {profile.gpu for profile in settings.profiles}
    for edit in admission.edits:
        for name in sorted(cards & edit.limits.keys()):
            fix = f"the kubelet would give it no card; it is {edit.limits[name]}"
            yield _late(f"{edit.path}.resources.limits[{name}]", "", fix)
        for mount in edit.mounts:
            fix = f"it would run without the library at {mount.mount_path}"
            yield _late(f"{edit.path}.volumeMounts", "", fix)
    for volume in admission.volumes:
        yield _late("spec.volumes", "", f"its library's volume is missing: {volume.name}")
    for found in admission.warnings:
        if found.action in ("remove", "replace"):
            yield _late(found.field, found.value, found.fix)


def _late(field: str, value: str, fix: str) -> Finding:
    return Finding("late-change", "refuse", field, value, f"{fix}; {_FIX}")
