"""An API server for many users: each request has the token of the user who asks, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hami_py.errors import state_errors
from hami_py.kube.server import ApiServer

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_POOL = 48
"""The connections to keep: 32 to node agents at a time, and some watches."""

_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")


def is_token(text: str) -> bool:
    """Whether a text can be sent as a bearer token: printable ASCII without spaces."""
    return _TOKEN.fullmatch(text) is not None


class UserServers:
    """Makes an ``ApiServer`` for a token.

    Args:
        configuration: the address of the API server and how it is checked. Its credentials are
            dropped.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    @property
    def host(self) -> str:
        """The address of the API server."""
        return str(self._configuration.host)

    @classmethod
    def at(cls, url: str, authority: Path) -> UserServers:
        """The API server at an address.

        Raises:
            StateError: the file cannot be read.
        """
        from kubernetes import client  # noqa: PLC0415

        with state_errors(str(authority), "name a file with certificates"):
            authority.read_bytes()
        configuration = client.Configuration()
        configuration.host, configuration.ssl_ca_cert = url, str(authority)
        return cls(configuration)

    @classmethod
    def of_kubeconfig(cls, kubeconfig: Path | None, context: str | None) -> UserServers:
        """The API server of a kubeconfig, as ``ApiServer.connect`` finds it.

        Raises:
            StateError: there is no such configuration, or it is invalid.
        """
        return cls(ApiServer.connect(kubeconfig, context).configuration)

    def of(self, token: str, namespace: str) -> ApiServer:
        """The API server for the user with this token; the caller closes it."""
        from kubernetes import client  # noqa: PLC0415

        own, other = self._configuration, client.Configuration()
        other.host, other.ssl_ca_cert = own.host, own.ssl_ca_cert
        other.verify_ssl, other.assert_hostname = own.verify_ssl, own.assert_hostname
        other.tls_server_name, other.proxy = own.tls_server_name, own.proxy
        other.connection_pool_maxsize = _POOL
        return ApiServer(
            client.ApiClient(other, header_name="Authorization", header_value=f"Bearer {token}"),
            namespace,
        )
