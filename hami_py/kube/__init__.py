"""The Kubernetes API server: what is there, as it changes, and the few things that we write.

``server`` carries bytes and turns statuses into errors, ``lists`` reads whole lists, ``follower``
keeps a copy of one (``reflector`` in a thread; ``followed`` says of what, and what is told), and
``writes`` has the requests that change something, ``annotations`` what one of them has to look at
itself, ``version`` what an older one does otherwise. ``documents`` reads files of YAML,
``settings`` the one that says how pods are judged. Who decodes what is decided by the callers: they
hand in a msgspec type with the fields that they read.
"""

from hami_py.kube.annotations import MOST_BYTES, annotation_bytes, check_annotations
from hami_py.kube.followed import Followed, Sink, Undecoded
from hami_py.kube.lists import list_objects
from hami_py.kube.reflector import Reflector
from hami_py.kube.server import ApiServer
from hami_py.kube.settings import read_settings
from hami_py.kube.version import keeps_labels_of_bindings
from hami_py.kube.writes import bind, patch_metadata

__all__ = [
    "MOST_BYTES",
    "ApiServer",
    "Followed",
    "Reflector",
    "Sink",
    "Undecoded",
    "annotation_bytes",
    "bind",
    "check_annotations",
    "keeps_labels_of_bindings",
    "list_objects",
    "patch_metadata",
    "read_settings",
]
