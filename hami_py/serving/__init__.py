"""Answering over HTTP: JSON in, JSON out, with limits and deadlines, on uvicorn.

``routes`` makes one route of a typed function, ``bodies`` bounds what is read at once,
``connections`` who is let in, ``server`` listens, with TLS where certificates are given. What the
answers are is the business of ``scheduler`` and ``webhook``.
"""

from hami_py.serving.bodies import Bodies
from hami_py.serving.routes import json_route, page
from hami_py.serving.server import Listen, Server, Tls

__all__ = ["Bodies", "Listen", "Server", "Tls", "json_route", "page"]
