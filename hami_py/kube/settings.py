"""The settings file: one for the webhook, the extender and whoever asks, so all judge alike."""

from __future__ import annotations

import os
from pathlib import Path

from hami_py.errors import InvalidValue
from hami_py.kube.documents import read_documents
from hami_py.model.pods import PodSettings, decode_settings

__all__ = ["read_settings"]


def read_settings(path: str | os.PathLike[str]) -> PodSettings:
    """How a cluster's pods are read, from its settings file.

    The file is YAML, or JSON: one mapping from the fields of ``PodSettings`` to values. Memory is
    in MiB, cores are percent of a card's time, paths are those in a container or of a node;
    ``profiles`` are the names ``hami`` and ``aliyun``. What is left out has its default, so an
    empty file is all defaults; a list replaces the default's.

    Args:
        path: the file.

    Raises:
        InvalidValue: it is no YAML, has a field that there is not or that stands there twice, or a
            value of a wrong type or out of its range. ``field`` begins with the path.
        StateError: it cannot be read.
        ImportError: there is nothing to read YAML with: ``hami-py[kubernetes]`` brings it.
    """
    file = Path(path)
    documents = list(read_documents(file, unique=True))
    if len(documents) > 1:
        raise InvalidValue(str(file), f"{len(documents)} documents", "write all fields into one")
    try:
        return decode_settings(documents[0] if documents else None)
    except InvalidValue as error:
        raise InvalidValue(f"{file}: {error.field}", error.value, error.fix) from None
