"""The metrics of a node for Prometheus: of each container with cards, and of each card.

``figures`` has the figures as types, and ``metrics`` writes them. The node agent collects them.
"""

from hami_py.monitor.figures import CardFigures, ContainerFigures, NodeFigures, PodExcess
from hami_py.monitor.metrics import exposition

__all__ = ["CardFigures", "ContainerFigures", "NodeFigures", "PodExcess", "exposition"]
