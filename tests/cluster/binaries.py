"""Builds the programs of a cluster once; there is no package of them to install.

Go downloads the sources from its module proxy. A program is built in its release, whose own go.mod
and go.sum lock every other version; Kubernetes' own name folders that are not in its release, so
`tools/kubernetes` locks them. The programs are kept per user, in a folder that is named after their
sources: `${XDG_CACHE_HOME:-~/.cache}/hami-py/kubernetes/<group>-<key>/`. A group has the programs
that one kind of test needs, so a test of the scheduler does not wait for a kubelet.

`PYTHONPATH=tests python3 -m cluster.binaries control-plane kubectl` builds missing groups and
prints the folders. It uses only the standard library, because it runs before there is an
environment.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"

#: Another version than the locked one, such as 1.34.4: `cluster.support` tries several.
OTHER_KUBERNETES = "HAMI_TEST_KUBERNETES"

#: The same of containerd, such as 1.7.35. Its sum is not checked.
OTHER_CONTAINERD = "HAMI_TEST_CONTAINERD"

#: Seconds that a group may take to build: several times what two busy cores need.
DEADLINE = 60 * 60.0


@dataclass(frozen=True)
class Release:
    """A Go module that locks what it needs, and its sum as in a go.sum.

    Of another version, `go mod download -json MODULE@vVERSION` prints the sum.
    """

    module: str
    version: str
    sum: str


RELEASES = {
    "containerd": Release(
        "github.com/containerd/containerd/v2",
        "2.3.7",
        "h1:7PGbgAVKE4ieQjFPv7+kwAv7f9dCtRpExZwjExHD/Fk=",
    ),
    "helm": Release("helm.sh/helm/v4", "4.3.1", "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g="),
    "helm3": Release(
        "helm.sh/helm/v3", "3.22.0", "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU="
    ),
    "prometheus": Release(
        "github.com/prometheus/prometheus",
        "0.316.0",
        "h1:f1GRFerhTMKQma+awCoC9T820ecWeGSdF+xAlMHzZzM=",
    ),
    "toolkit": Release(
        "github.com/NVIDIA/nvidia-container-toolkit",
        "1.20.2",
        "h1:ndvx+2v4c8HmRf8A5aONf1+sE32jNDZ7qnIaBEAN5i8=",
    ),
}


if os.environ.get(OTHER_CONTAINERD):
    _number = os.environ[OTHER_CONTAINERD]
    _path = "github.com/containerd/containerd" + ("" if _number.startswith("1.") else "/v2")
    RELEASES["containerd"] = Release(_path, _number, "")


@dataclass(frozen=True)
class Program:
    """One Go program: its name, the release or the module of ours that locks it, its package.

    ``cgo``: it calls C, so it is built with gcc and linked with this machine's glibc.
    ``tags``: Go's build tags of its own.
    """

    name: str
    module: str
    package: str
    cgo: bool = False
    tags: tuple[str, ...] = ()


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}")


def _released(name: str, release: str, *, cgo: bool = False, tags: Sequence[str] = ()) -> Program:
    return Program(name, release, f"{RELEASES[release].module}/cmd/{name}", cgo, tuple(tags))


#: Without the clients of all clouds: https://github.com/prometheus/prometheus#building-from-source
_NO_CLOUDS = ("remove_all_sd", "enable_kubernetes_sd")

GROUPS: dict[str, tuple[Program, ...]] = {
    "control-plane": (
        Program("etcd", "kubernetes", "go.etcd.io/etcd/server/v3"),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-scheduler"),
    ),
    "kubectl": (_kubernetes("kubectl"),),
    "controllers": (_kubernetes("kube-controller-manager"),),
    "helm": (_released("helm", "helm"),),
    "helm3": (_released("helm", "helm3"),),
    "node": (
        _kubernetes("kubelet"),
        _released("containerd", "containerd"),
        _released("containerd-shim-runc-v2", "containerd"),
        _released("ctr", "containerd"),
    ),
    "prometheus": (
        _released("prometheus", "prometheus", tags=_NO_CLOUDS),
        _released("promtool", "prometheus", tags=_NO_CLOUDS),
    ),
    "toolkit": (
        _released("nvidia-ctk", "toolkit", cgo=True),
        _released("nvidia-container-runtime", "toolkit", cgo=True),
        _released("nvidia-cdi-hook", "toolkit", cgo=True),
    ),
    # Those of "control-plane", "controllers" and "kubectl", and the kubelet: to travel.
    "together": (Program("kubernetes", "kubernetes", "./together"),),
}


#: Minutes that a group takes to build on two cores, sources included.
MINUTES = {
    "control-plane": 6,
    "controllers": 1,
    "kubectl": 1,
    "helm": 3,
    "helm3": 2,
    "node": 3,
    "prometheus": 4,
    "toolkit": 1,
    "together": 2,
}

#: Interfaces of the kubelet that the node group comes with, below k8s.io/kubelet/pkg/apis.
PROTOS = {
    "deviceplugin": "deviceplugin/v1beta1/api.proto",
    "podresources": "podresources/v1/api.proto",
}


class CannotBuild(Exception):
    """The program that is missing on this machine, and how to install it."""


def cache() -> Path:
    """Where built programs are kept, for all clones of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hami-py" / "kubernetes"


def folder(group: str) -> Path:
    """Where the programs of this group are, or will be; named by sources and commands."""
    if group in _elsewhere:
        return _elsewhere[group]
    programs = GROUPS[group]
    digest = hashlib.sha256(repr([_command(program) for program in programs]).encode())
    for module in sorted({program.module for program in programs}):
        if module in RELEASES:
            digest.update(repr(RELEASES[module]).encode())
            continue
        for name in ("go.mod", "go.sum"):
            digest.update((_locked(module) / name).read_bytes())
    for program in programs:
        if program.package.startswith("./"):
            source = TOOLS / program.module / program.package / "main.go"
            digest.update(source.read_bytes())
    return cache() / f"{group}-{digest.hexdigest()[:16]}"


#: Folders of groups that were built on another machine.
_elsewhere: dict[str, Path] = {}


def use(folder: Path) -> None:
    """Use the programs of this folder, whatever group they are of."""
    _elsewhere.update(dict.fromkeys(GROUPS, folder))


def ensure(group: str) -> Path:
    """The folder with this group's programs, which are built if they are not there.

    Raises:
        CannotBuild: something is missing; the message says what.
    """
    target = folder(group)
    if target.is_dir():
        return target
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        # A second process waits and then finds the group built.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _build_group(group, target)
    return target


def _build_group(group: str, target: Path) -> None:
    if shutil.which("go") is None:
        raise CannotBuild("missing: go (1.26 or newer, builds Kubernetes); see https://go.dev/dl/")
    names = ", ".join(program.name for program in GROUPS[group])
    _say(f"building {names}: once per version, about {MINUTES[group]} min on two cores")
    begin = time.monotonic()
    # Beside the target, so that a rename makes it whole or not at all.
    building = Path(tempfile.mkdtemp(prefix=f".{group}-", dir=cache()))
    try:
        for program in GROUPS[group]:
            _build(program, building / program.name, begin + DEADLINE - time.monotonic())
            _say(f"  {program.name}, after {time.monotonic() - begin:.0f} s")
        if group == "node":
            _copy_protos(building)
        building.chmod(0o755)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if all(folder(other).is_dir() for other in GROUPS if other != "together"):
        # Gigabytes that only another version's build would read.
        shutil.rmtree(_go_cache(), ignore_errors=True)


def _go_cache() -> Path:
    return cache() / "go-build"


def _build(program: Program, output: Path, deadline: float) -> None:
    cgo = str(int(program.cgo))
    # A release may name modules of its repository in a go.work, which it does not contain.
    env = {**os.environ, "CGO_ENABLED": cgo, "GOFLAGS": "", "GOWORK": "off"}
    env["GOCACHE"] = str(_go_cache())
    with subprocess.Popen(
        ["nice", "-n", "19", *_command(program), "-p", "2", "-o", str(output), program.package],
        cwd=_sources(program.module),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as go:
        try:
            out, _ = go.communicate(timeout=deadline)
        except BaseException as error:
            # The compilers too, not only `go` itself.
            os.killpg(go.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                late = f"building {program.name} took more than {DEADLINE:.0f} s"
                raise CannotBuild(f"{late}; run it again: it goes on where it was") from None
            raise
    if go.returncode != 0:
        last = "\n".join(line for line in out.splitlines() if "downloading" not in line)[-2000:]
        raise CannotBuild(
            f"cannot build {program.name}; it needs Go's module proxy (go env GOPROXY) and the Go "
            f"that its go.mod names:\n{last}"
        )


def _sources(module: str) -> Path:
    """Where a release is, which is downloaded if it is not there; or the module of ours."""
    if module not in RELEASES:
        return _locked(module)
    release = RELEASES[module]
    # Its sum stands here, so no other server has to know it.
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{release.module}@v{release.version}"],
        cwd=cache(),
        env={**os.environ, "GOFLAGS": "", "GOWORK": "off", "GONOSUMDB": "*"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    found = json.loads(done.stdout) if done.stdout else {"Error": done.stderr}
    if "Error" in found or (release.sum and found.get("Sum") != release.sum):
        why = found.get("Error", f"its sum is {found.get('Sum')}")
        raise CannotBuild(
            f"cannot download {release.module} {release.version} from Go's module proxy "
            f"(go env GOPROXY): {why}"
        )
    return Path(found["Dir"])


def _copy_protos(folder: Path) -> None:
    """The kubelet's own gRPC interfaces, as of this version: ``protos/deviceplugin.proto``, ..."""
    found = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubelet"],
        cwd=_locked("kubernetes"),
        env={**os.environ, "GOFLAGS": "-mod=readonly"},
        check=True,
        capture_output=True,
        text=True,
        timeout=120.0,
    )
    apis = Path(found.stdout.strip()) / "pkg" / "apis"
    (folder / "protos").mkdir()
    for name, source in PROTOS.items():
        shutil.copyfile(apis / source, folder / "protos" / f"{name}.proto")


def _command(program: Program) -> list[str]:
    """The inputs of the build besides the sources."""
    tags = ",".join(("grpcnotrace", *program.tags))
    command = ["go", "build", "-trimpath", "-mod=readonly", "-tags", tags]
    # The driver's functions are found when they are called: not all are in every driver.
    lazy = ["-extldflags=-Wl,-z,lazy"] if program.cgo else []
    return [*command, "-ldflags", " ".join(["-s", "-w", *lazy, *_stamps(program)])]


def _stamps(program: Program) -> list[str]:
    """The flags that set the release in /version and in a node's kubeletVersion."""
    if program.module == "toolkit":
        release = RELEASES["toolkit"]
        return [f"-X {release.module}/internal/info.version={release.version}"]
    if not program.package.startswith(("k8s.io/", "./")):
        return []
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    says = {
        "gitVersion": f"v{version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "archive",
        "gitCommit": "0" * 40,
        "buildDate": "2026-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return [f"-X {package}.{name}={value}" for package in packages for name, value in says.items()]


def _locked(module: str) -> Path:
    """The module of ours that locks programs; of another Kubernetes it is made in the cache."""
    other = os.environ.get(OTHER_KUBERNETES)
    if module != "kubernetes" or other is None:
        return TOOLS / module
    target = cache() / "modules" / f"kubernetes-{other}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            subprocess.run([TOOLS / "pin", other, folder], check=True, timeout=DEADLINE)
            Path(folder, "kubernetes").rename(target)
    return target


def kubernetes_version() -> str:
    """The version that is used, such as ``1.36.3``."""
    return _version(_locked("kubernetes"))


def deployed_version() -> str:
    """The version that deploy/ names."""
    return _version(TOOLS / "kubernetes")


def _version(module: Path) -> str:
    text = (module / "go.mod").read_text()
    found = re.search(r"^(?:require)?\s*k8s.io/kubernetes v(\S+)", text, re.MULTILINE)
    assert found is not None, "tools/kubernetes/go.mod does not name k8s.io/kubernetes"
    return found.group(1)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(groups: Sequence[str]) -> int:
    """Build the named groups; one line for what is in the way."""
    unknown = [group for group in groups if group not in GROUPS]
    if unknown or not groups:
        _say(f"usage: python3 -m cluster.binaries GROUP...; the groups are {', '.join(GROUPS)}")
        return 2
    if missing := [group for group in groups if not folder(group).is_dir()]:
        minutes = sum(MINUTES[group] for group in missing)
        names = ", ".join(program.name for group in missing for program in GROUPS[group])
        _say(f"to build into {cache()}: {names}; about {minutes} min in all")
    try:
        for group in groups:
            print(ensure(group))
    except CannotBuild as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
