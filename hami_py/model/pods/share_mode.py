"""Whether a container's share of time is hard or soft.

The first of these that says it decides:

1. the pod's annotation ``hami.io/share-mode``: ``hard`` or ``soft``;
2. HAMi's variable ``GPU_CORE_UTILIZATION_POLICY`` in the container's ``env``, where the webhook
   also writes the setting ``core_policy``: ``force`` is hard, and every other value soft, as in
   HAMi. ``disable`` says nothing about it;
3. the setting ``share_modes``, by the pod's namespace;
4. the setting ``share_mode``.
"""

from hami_py.config import UTILIZATION_POLICY
from hami_py.errors import InvalidValue
from hami_py.model.limits import MODES, Mode
from hami_py.model.pods.objects import Container, Pod
from hami_py.model.pods.settings import PodSettings

_POLICIES: dict[str, Mode | None] = {
    "force": "hard",
    "FORCE": "hard",
    "disable": None,
    "DISABLE": None,
}


def read_share_mode(container: Container, pod: Pod, settings: PodSettings) -> Mode:
    """The mode of a container's share.

    Raises:
        InvalidValue: the annotation has another value. As with other annotations, an empty one
            counts as absent.
    """
    default = settings.share_modes.get(pod.metadata.namespace or "", settings.share_mode)
    return _annotated(pod, settings.profiles[0].share_mode) or _of_variable(container) or default


def _annotated(pod: Pod, annotation: str | None) -> Mode | None:
    text = pod.annotations.get(annotation, "").strip() if annotation is not None else ""
    for mode in MODES:
        if text == mode:
            return mode
    if text:
        raise InvalidValue(f"metadata.annotations[{annotation}]", text, "write hard or soft")
    return None


def _of_variable(container: Container) -> Mode | None:
    # As in the kubelet, the last of several entries with one name counts.
    written = [each for each in container.env or () if each.name == UTILIZATION_POLICY]
    if not written or written[-1].value_from is not None:
        return None
    return _POLICIES.get(written[-1].value or "", "soft")
