"""The extender's server without the extender: the cost of HTTP alone on this machine.

python -m bench.scheduler_floor PORT BYTES BYTES      of an answer to filter, to prioritize
"""

import signal
import sys

from starlette.routing import Router

from hami_py.serving import Listen, Server, json_route

_MOST = 1 << 24


def serve(port: int, filtered: int, rated: int) -> None:
    """Answers until it is ended."""
    routes = []
    for path, size in (("/filter", filtered), ("/prioritize", rated)):
        answer = b'"' + b"x" * (size - 2) + b'"'
        routes.append(json_route(path, len, lambda _, answer=answer: answer, most_bytes=_MOST))
    Server(Router(routes), Listen(port=port)).start()
    signal.pause()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
