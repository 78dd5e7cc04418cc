"""Our HTTP services in a process of their own, without an API server: for tests of what they bear.

python -m services.serve        prints the port, serves until standard input ends
"""

import sys

from starlette.applications import Starlette

from hami_py._native import Allocator
from hami_py.errors import NoDevice
from hami_py.model import pods
from hami_py.scheduler.app import make_app as scheduler_app
from hami_py.scheduler.cluster import Cluster
from hami_py.scheduler.metrics import Meter
from hami_py.scheduler.verbs import Timing, Verbs
from hami_py.serving import Listen, Server
from hami_py.webhook.app import make_app as webhook_app
from hami_py.webhook.patch import Extras
from hami_py.webhook.review import Reviewer


class Away:
    """An API server that is not there."""

    def __getattr__(self, name: str) -> object:
        raise NoDevice("the API server", "there is none in this test", "ask for nothing of it")


def main() -> None:
    settings = pods.PodSettings()
    cluster = Cluster(Allocator(), settings)
    for sink in (cluster.nodes, cluster.pods, cluster.quotas):
        sink.replace([])
    for name in ("a", "b"):
        cards = tuple(
            pods.wire.Card(f"GPU-{name}-{i}", i, "NVIDIA A100-SXM4-80GB", 81_920) for i in range(8)
        )
        cluster.allocator.set_node(pods.wire.encode(pods.wire.Node(name, cards=cards)))
    verbs = Verbs(cluster, Away(), Timing())  # type: ignore[arg-type]
    reviewer = Reviewer(settings, Extras({"hami.io/pod": "true"}))
    routes = [*webhook_app(reviewer, str).routes, *scheduler_app(verbs, Meter(cluster))]
    server = Server(Starlette(routes=routes), Listen())
    server.start()
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
