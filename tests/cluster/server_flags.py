"""The flags that every server of a test cluster has."""

from collections.abc import Sequence
from pathlib import Path

from cluster.certificates import Authority, Identity

Flags = dict[str, object]

#: Where in-cluster clients find the API server, were there a proxy.
SERVICE_NETWORK = "10.96.0.0/24"


def etcd(folder: Path, client_port: int, peer_port: int) -> Flags:
    """One member, on loopback, with its data in this folder."""
    clients = f"http://127.0.0.1:{client_port}"
    peers = f"http://127.0.0.1:{peer_port}"
    return {
        "name": "test",
        "data-dir": folder,
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"test={peers}",
        # The data need not survive a crash of the machine.
        "unsafe-no-fsync": "true",
        "quota-backend-bytes": 4 << 30,
        "log-level": "warn",
    }


def apiserver(
    folder: Path,
    listen: tuple[str, int],
    *,
    etcd_port: int,
    authority: Authority,
    serving: Identity,
    kubelets: Identity,
    tokens: Identity,
) -> Flags:
    """Of the API server.

    ``serving`` is what it shows, ``kubelets`` as whom it asks them, ``tokens`` signs those of
    service accounts; ``authority`` has signed what clients and kubelets show.
    """
    address, port = listen
    return {
        "etcd-servers": f"http://127.0.0.1:{etcd_port}",
        "bind-address": address,
        "secure-port": port,
        "tls-cert-file": serving.certificate,
        "tls-private-key-file": serving.key,
        "client-ca-file": authority.certificate,
        "kubelet-certificate-authority": authority.certificate,
        "kubelet-client-certificate": kubelets.certificate,
        "kubelet-client-key": kubelets.key,
        "kubelet-preferred-address-types": "InternalIP",
        "service-cluster-ip-range": SERVICE_NETWORK,
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": tokens.certificate,
        "service-account-signing-key-file": tokens.key,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        # A Service's endpoints are called directly, as if every node had a proxy.
        "enable-aggregator-routing": "true",
        # An endpoint on loopback is refused, and no client uses this one.
        "endpoint-reconciler-type": "none",
        "cert-dir": folder,
        # Tests start and stop many of these, so no client is throttled.
        "max-requests-inflight": 2000,
        "max-mutating-requests-inflight": 1000,
        "shutdown-delay-duration": "0s",
    }


def controller_manager(
    controllers: Sequence[str], kubeconfig: Path, authority: Authority, tokens: Identity
) -> Flags:
    """Of the controller manager, with these controllers alone."""
    return {
        "kubeconfig": kubeconfig,
        "controllers": ",".join(controllers),
        "leader-elect": "false",
        "service-account-private-key-file": tokens.key,
        "root-ca-file": authority.certificate,
        "use-service-account-credentials": "true",
        "kube-api-qps": 1000,
        "kube-api-burst": 2000,
    }


def component(port: int, kubeconfig: Path, authority: Authority, serving: Identity) -> Flags:
    """Of one that has health and metrics on loopback, and has its callers judged by the API."""
    return {
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "tls-cert-file": serving.certificate,
        "tls-private-key-file": serving.key,
        "client-ca-file": authority.certificate,
        "authentication-kubeconfig": kubeconfig,
        # Its users come with certificates of ours; nothing is to be looked up for that.
        "authentication-skip-lookup": "true",
        "authorization-kubeconfig": kubeconfig,
    }
