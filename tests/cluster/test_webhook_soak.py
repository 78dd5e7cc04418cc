"""Certificates that change every ten seconds under load, and no review fails.

The full count takes five minutes: a certificate that is trusted too late fails a review now and
then, not at each change.
"""

import base64
import re
import socket
import ssl
import time

import pytest

from cluster.admission import CONFIGURATIONS
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.load import Load
from cluster.webhooks import NAME, webhook
from hami_py.webhook.certificates import Lifetimes
from support.tiers import amount

ROTATIONS = amount("certificate changes")
EVERY_S = 10.0

#: An authority is created every ten seconds and signs three seconds later, when all replicas trust
#: it. A certificate that it signed is replaced ten seconds after that at the latest, and is trusted
#: for three more. In a cluster the same takes eight months and a minute. All are renewed early,
#: because on a busy machine the next one may come seconds late.
LIVES = Lifetimes(authority_s=3 * EVERY_S, serving_s=3 * EVERY_S, renew_at=1 / 3, overlap_s=3.0)

#: Of each client: under each certificate ten at the least, and in all more than those.
LEAST_PODS = 20 * ROTATIONS


def shown(port: int) -> bytes:
    """The certificate that a new connection meets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain) as link,
    ):
        return link.getpeercert(binary_form=True) or b""


def trusted(cluster: ControlPlane, path: str) -> list[str]:
    """The authorities that the API server trusts, by one of its configurations."""
    entries = cluster.api.get(f"{path}/{NAME}")["webhooks"]
    (written,) = {entry["clientConfig"]["caBundle"] for entry in entries}
    bundle = base64.b64decode(written).decode()
    return re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", bundle, re.S)


@pytest.mark.timeout(900)
def test_no_review_fails_while_everything_changes(
    control_plane: StartControlPlane,
) -> None:
    """Waits for each change: no step may come before the API server has read the one before."""
    cluster = control_plane()
    certificates: set[bytes] = set()
    authorities: dict[str, set[str]] = {path: set() for path in CONFIGURATIONS}
    with (
        webhook(cluster, period_s=0.5, lifetimes=LIVES, replicas=2) as hook,
        Load(cluster) as load,
    ):
        deadline = time.monotonic() + 2 * ROTATIONS * EVERY_S
        while min(map(len, authorities.values())) <= ROTATIONS:
            assert time.monotonic() < deadline
            if (now := shown(hook.server.port)) not in certificates:
                load.goes_on()
                certificates.add(now)
            for path, seen in authorities.items():
                seen.update(trusted(cluster, path))
            time.sleep(0.5)
    assert load.wrong == []
    assert load.least() > LEAST_PODS
    assert len(certificates) > ROTATIONS
    assert hook.keeper.failures == 0
