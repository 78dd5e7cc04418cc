"""Names of slices, and names of Kubernetes' objects.

A slice's name appears in command lines, tables and messages, so only plain characters are allowed:
nothing in it can be mistaken for an option or a path.
"""

import json
import re

from hami_py.errors import InvalidValue

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def check_name(name: str, field: str = "name") -> str:
    """Return the name of a slice, if it is valid.

    Raises:
        InvalidValue: it is not.
    """
    # Python callers may pass something that is no text.
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        fix = "write 1 to 63 letters and digits; after the first, _ . - are allowed too"
        raise InvalidValue(field, str(name), fix)
    return name


def check_object_name(field: str, text: str) -> str:
    """Return the name of a Kubernetes object, if it is valid and safe in a path of the API.

    Raises:
        InvalidValue: it is not.
    """
    if not _OBJECT_NAME.fullmatch(text) or ".." in text:
        fix = "write a name as kubectl shows it: lower-case letters, digits, - and ."
        raise InvalidValue(field, text, fix)
    return text


def legible(name: str) -> str:
    """A name for a message: quoted if it is empty or has characters that would garble the line."""
    return name if name and name.isprintable() else json.dumps(name)


def parse_address(field: str, text: str, example: str, first_port: int = 1) -> tuple[str, int]:
    """Parse ``ADDRESS:PORT``; an IPv6 address is in brackets.

    Raises:
        InvalidValue: it is none, or the port is below the first one.
    """
    host, _, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= len("65535")
    if not host or not is_number or not first_port <= int(port) < 1 << 16:
        raise InvalidValue(field, text, f"write an address and a port, such as {example}")
    return host.strip("[]"), int(port)
