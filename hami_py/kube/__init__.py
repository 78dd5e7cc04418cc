"""The Kubernetes API server: reads lists, follows changes, and makes the few writes that we need.

``server`` sends requests and converts statuses to errors. ``lists`` reads whole lists. ``follower``
keeps a copy of a list up to date, and ``reflector`` does so in a thread; ``followed`` has the
interface of the receiver. ``users`` sends requests with the tokens of other users. ``writes`` has
the requests that change objects, and ``events`` writes events. ``documents`` reads YAML files, and
``settings`` the settings file.

Callers pass msgspec types with the fields that they read; this package decodes nothing else.
"""

from hami_py.kube.events import Event, EventWriter, Reference
from hami_py.kube.followed import Followed, Sink, Undecoded
from hami_py.kube.lists import list_objects, list_version
from hami_py.kube.reflector import Reflector
from hami_py.kube.server import ApiServer, path_of
from hami_py.kube.settings import read_settings
from hami_py.kube.users import UserServers, is_token
from hami_py.kube.writes import (
    MOST_BYTES,
    annotation_bytes,
    bind,
    check_annotations,
    keeps_labels_of_bindings,
    patch_metadata,
    patch_status,
)
