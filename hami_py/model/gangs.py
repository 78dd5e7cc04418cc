"""Gangs: slices of one machine that get the cards at the same time.

Kernels of one job may wait for each other on several cards, as those of a collective do. If the
ranks of the job run in different slices, the job only advances while all of these slices have the
cards. So its user puts them into a gang.

The coordinator knows a gang by 16 bytes on the limits pages of its slices. They are a digest of the
gang's name and of its owner, so that no user and no namespace can join the gang of another.
"""

_BYTES = 16


def gang_of_user(uid: int, name: str) -> bytes:
    """The gang of a user's slices that have this name, as limits pages store it."""
    return _digest("user", str(uid), name)


def gang_of_namespace(namespace: str, name: str) -> bytes:
    """The gang of a Kubernetes namespace's pods that have this name, as limits pages store it."""
    return _digest("namespace", namespace, name)


def _digest(*parts: str) -> bytes:
    # OpenSSL takes longer to load than the rest of this package, and few slices are in a gang.
    import hashlib  # noqa: PLC0415

    # No part contains a zero byte, so different parts are different texts.
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=_BYTES).digest()
    # On a limits page zero means no gang.
    return bytes([digest[0] | 1]) + digest[1:]
