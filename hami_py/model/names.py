"""The names that people give their slices, and those of Kubernetes' objects.

A slice's name stands in command lines, tables and messages, so it is plain; nothing in it can be
taken for an option or a path.
"""

import json
import re

from hami_py.errors import InvalidValue

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def check_name(name: str, field: str = "name") -> str:
    """The name, if it is one.

    Raises:
        InvalidValue: with field, value and fix.
    """
    # Python callers may pass what is no text at all.
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        fix = "write 1 to 63 letters, digits, and after the first also _ . -"
        raise InvalidValue(field, str(name), fix)
    return name


def check_object_name(field: str, text: str) -> str:
    """A name as Kubernetes' objects have them: in a path of the API it stands for one object.

    Raises:
        InvalidValue: it is none.
    """
    if not _OBJECT_NAME.fullmatch(text) or ".." in text:
        fix = "write a name as kubectl shows it: small letters, digits, and - or . between them"
        raise InvalidValue(field, text, fix)
    return text


def legible(name: str) -> str:
    """A name for a message: an empty one is seen, an odd one stays on one line."""
    return name if name and name.isprintable() else json.dumps(name)
