"""The use of all cards of a cluster: for ``kubectl hami inspect``, ``top`` and ``quota``.

Objects come from the API server: nodes, quotas, pods with their cards. Figures of use come from the
node agents, through the API server's pod proxy, so the user's own rights decide what is shown. Who
may not read something sees the rest, and a note that names the missing right.

| module | contains |
|---|---|
| ``report`` | the answer, as types that are also the JSON |
| ``objects`` | the objects that are read, and the fields of them |
| ``reading`` | reads objects once, or follows them |
| ``agents`` | reads the figures of all node agents at once |
| ``build`` | objects and figures into an answer; pure |
| ``waiting`` | why a pod waits; pure |
"""

from hami_py.overview.reading import Reader, Scope
from hami_py.overview.report import NamespaceReport, NodeReport, Overview, WaitingPod
