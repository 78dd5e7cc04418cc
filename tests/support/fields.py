"""Field selectors of pods, as an API server reads them.

``ParseSelector`` of apimachinery's ``pkg/fields``: terms joined by commas; a term is a field, one
of ``=``, ``==`` and ``!=``, and a value, in which a backslash stands before a comma, an equals sign
or another backslash. Terms all have to hold. Which fields a pod can be selected by is a list of
Kubernetes' own, and any other is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

#: https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
#: By field, what one that is left out is stored as.
FIELDS = {
    "metadata.name": "",
    "metadata.namespace": "",
    "spec.nodeName": "",
    "spec.restartPolicy": "Always",
    "spec.schedulerName": "default-scheduler",
    "spec.serviceAccountName": "default",
    "spec.hostNetwork": "false",
    "status.phase": "Pending",
    "status.podIP": "",
    "status.nominatedNodeName": "",
}

_TERM = re.compile(r"(?P<field>[A-Za-z.]+)(?P<sign>!=|==|=)(?P<value>(?:[^\\,=]|\\[\\,=])*)(?:,|$)")


def parsed(selector: str) -> Callable[[Object], bool]:
    """Whether a pod is selected.

    Raises:
        ValueError: the API server answers 400.
    """
    terms: list[tuple[str, str, bool]] = []
    at = 0
    while at < len(selector):
        term = _TERM.match(selector, at)
        if term is None or term["field"] not in FIELDS:
            raise ValueError(f"400: no field selector: {selector[at:]!r}")
        value = re.sub(r"\\(.)", r"\1", term["value"])
        terms.append((term["field"], value, term["sign"] != "!="))
        at = term.end()
    return lambda pod: all((_value(pod, field) == value) == is_in for field, value, is_in in terms)


def _value(pod: Object, field: str) -> str:
    part, _, name = field.partition(".")
    value = pod.get(part, {}).get(name) or FIELDS[field]
    return value if isinstance(value, str) else str(value).lower()
