"""JSON over HTTP, with limits and deadlines, on uvicorn.

``routes`` makes a route of a typed function, ``bodies`` bounds the memory of all bodies together,
``connections`` decides which connections are admitted, and ``server`` listens, with TLS if there is
a certificate. The applications are in ``scheduler`` and ``webhook``.
"""

from hami_py.serving.bodies import Bodies
from hami_py.serving.routes import json_route, page
from hami_py.serving.server import Listen, Server, Tls
