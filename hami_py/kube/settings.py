"""The settings file. Webhook, extender and commands read the same file, so they judge alike."""

from __future__ import annotations

import os
from pathlib import Path

from hami_py.errors import InvalidValue
from hami_py.kube.documents import read_documents
from hami_py.model.pods import PodSettings, decode_settings


def read_settings(path: str | os.PathLike[str]) -> PodSettings:
    """Reads a cluster's settings file.

    The file is YAML or JSON with one mapping from the fields of ``PodSettings`` to values. Memory
    is in MiB, cores are percent of a card's time, and paths are in a container or on a node.
    ``profiles`` has the names ``hami`` and ``aliyun``. A field that is missing has its default, so
    an empty file means all defaults; a list replaces the default list.

    Raises:
        InvalidValue: the file is not valid YAML, has an unknown or repeated field, or a value of a
            wrong type or out of range. ``field`` begins with the path.
        StateError: the file cannot be read.
        ImportError: PyYAML is missing; the extra ``kubernetes`` installs it.
    """
    file = Path(path)
    documents = list(read_documents(file, unique=True))
    if len(documents) > 1:
        raise InvalidValue(
            str(file), f"{len(documents)} documents", "write all fields into one document"
        )
    try:
        return decode_settings(documents[0] if documents else None)
    except InvalidValue as error:
        raise InvalidValue(f"{file}: {error.field}", error.value, error.fix) from None
