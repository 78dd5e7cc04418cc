"""The figures of a node: of each container with cards, and of each card.

``figures`` has the figures as types and as JSON, ``metrics`` writes them for Prometheus, and
``hami_names`` under HAMi's names. ``history`` keeps the last hour. The node agent collects them.
"""

from hami_py.monitor.figures import NodeFigures, PodExcess, Starts, decode, encode, used_shares
from hami_py.monitor.hami_names import hami_exposition
from hami_py.monitor.history import Histories, History, Reading, decode_history, readings_of
from hami_py.monitor.metrics import exposition, machine_exposition
