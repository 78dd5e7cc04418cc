"""A Slurm of one node with the service of a machine, on a stub's cards.

All programs are in a mount namespace of their own: /etc and /usr are overlays, so that the
machine's users, Slurm and loader stay as they are, and /run is empty. Slurm is configured by
deploy/slurm. A user's programs find the interpreter and the checkout at paths that all may read.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster.waiting import until
from support.artifacts import ROOT, Artifacts
from support.machine_users import SERVICE
from support.running import Run, Started, run
from support.stub import StubServer

#: Users that no machine has.
ANNA, BERT = 64001, 64002

FOLDER, PAGE = ROOT / "deploy" / "slurm", ROOT / "docs" / "machine.md"

GIB = 1 << 30

#: Seconds for a job to start or end; far more than any takes.
_LONG = 180.0

_MOUNTS = """
set -e
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=755 none {place}/private
cd {place}/private
mkdir /run/munge
for name in etc usr; do
    mkdir $name $name.work
    mount -t overlay none -o lowerdir=/$name,upperdir=$PWD/$name,workdir=$PWD/$name.work /$name
done
mknod nvidia0 c 195 0
mknod nvidia1 c 195 1
mount --bind {base} {place}/python
mount --bind {prefix} {place}/venv
mount --bind {root} {place}/checkout
echo ready
exec cat
"""

#: What the lines of deploy/slurm leave to the administrator, for a node without systemd.
_CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
MailProg=/bin/true
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PartitionName=p Nodes={host} Default=YES
"""

_PYTHON = """#!/bin/sh
export PYTHONPATH={place}/checkout:{place}/venv/lib/{version}/site-packages
exec {place}/python/bin/{version} {arguments} "$@"
"""


class Slurm:
    """The node; ``place`` is a folder that all users can enter."""

    def __init__(self, place: Path, gpu: StubServer, artifacts: Artifacts, policy: str) -> None:
        self.place, self.gpu = place, gpu
        self._stack = contextlib.ExitStack()
        for path in (gpu.client_socket, gpu.client_socket.parent):
            path.chmod(0o777)
        for name in ("private", "python", "venv", "checkout", "lib", "state", "spool", "hami"):
            (place / name).mkdir()
        for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(artifacts.stub_dir / library, place / "lib" / library)
        self.env = {**gpu.charging_env, "LD_LIBRARY_PATH": str(place / "lib")}
        (place / "machine.toml").write_text(policy)
        mounts = _MOUNTS.format(place=place, base=sys.base_prefix, prefix=sys.prefix, root=ROOT)
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts]
        self._inside = self._stack.enter_context(Started(enter, {}))
        self._stack.callback(self._end_all)
        self._inside.wait_for("ready")
        self._write()
        self.service = self.start_service()

    def _write(self) -> None:
        """The files of the node."""
        root = Path(f"/proc/{self._inside.pid}/root")
        names = {ANNA: "anna", BERT: "bert"}
        for number, name in names.items():
            (self.place / name).mkdir()
            os.chown(self.place / name, number, number)
            line = f"{name}:x:{number}:{number}::{self.place / name}:/bin/sh\n"
            with (root / "etc" / "passwd").open("a") as file:
                file.write(line)
            with (root / "etc" / "group").open("a") as file:
                file.write(f"{name}:x:{number}:\n")
        (install,) = re.findall("^(install -D .*)$", PAGE.read_text(), re.M)
        done = self.run("sh", "-c", f"cd {ROOT} && {install}")
        assert done.code == 0, done
        host = socket.gethostname().partition(".")[0]
        controller, node = _free_ports()
        own = _CONFIGURATION.format(place=self.place, host=host, controller=controller, node=node)
        ours = (FOLDER / "slurm.conf").read_text()
        assert "NodeName=gpu1 " in ours
        ours = ours.replace("gpu1", f"{host} NodeAddr=127.0.0.1")
        (root / "etc" / "slurm" / "slurm.conf").write_text(ours + own)
        cards = (FOLDER / "gres.conf").read_text().replace("/dev/", f"{self.place}/private/")
        (root / "etc" / "slurm" / "gres.conf").write_text(f"AutoDetect=off\n{cards}")
        (root / "etc" / "slurm" / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (root / "etc" / "munge" / "munge.key").write_bytes(os.urandom(128))
        (root / "etc" / "munge" / "munge.key").chmod(0o400)
        os.chown(root / "etc" / "munge" / "munge.key", 0, 0)
        programs = root / "usr" / "local" / "bin"
        programs.mkdir(exist_ok=True)
        for name, arguments in (("hami", "-m hami_py"), ("python-of-hami", "")):
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            text = _PYTHON.format(place=self.place, version=version, arguments=arguments)
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)

    def command(self, *words: object, uid: int = 0) -> list[str]:
        """A command in the node's mount namespace, as a user."""
        enter = ["nsenter", "--mount", "--target", str(self._inside.pid), "--wd=/"]
        user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
        return [*enter, "--", *(user if uid else ()), *map(str, words)]

    def run(self, *words: object, uid: int = 0, input: str = "", **env: str) -> Run:
        """Run it, with the stub's card."""
        command = self.command(*words, uid=uid)
        return run(command, {**self.env, **env}, input=input, deadline=_LONG)

    def start(self, *words: object, uid: int = 0) -> Started:
        """Start it; it ends with the node."""
        return self._stack.enter_context(Started(self.command(*words, uid=uid), self.env))

    def start_service(self) -> Started:
        """Start `hami machine`."""
        words = ("/run/hami", self.place / "hami", self.place / "machine.toml")
        self.service = self.start("python-of-hami", SERVICE, *words)
        root = Path(f"/proc/{self._inside.pid}/root")
        until((root / "run" / "hami" / "machine.sock").exists, "the service listens")
        until(lambda: self.run("hami", "machine", "status").code == 0, "the service answers")
        return self.service

    def start_slurm(self) -> None:
        """Start Slurm, and wait for its node."""
        self.start("munged", "--force", "--foreground")
        until(lambda: self.run("munge", "-n").code == 0, "munged answers")
        self.start("slurmctld", "-D")
        self.slurmd = self.start("slurmd", "-D")
        until(lambda: "idle" in self.run("sinfo", "--noheader").out, "the node is idle")

    def submit(self, script: str, *options: object, uid: int = ANNA, **env: str) -> int:
        """Submit a job; its number."""
        home = self.place / ("anna" if uid == ANNA else "bert")
        words = ("sbatch", "--parsable", f"--chdir={home}", "--output=%j.out", *options)
        done = self.run(*words, f"--wrap={script}", uid=uid, **env)
        assert done.code == 0, done
        return int(done.out)

    def srun(self, *words: object, uid: int = ANNA, input: str = "", **env: str) -> Run:
        """Run a job of this command to its end."""
        return self.run("srun", "--quiet", "--chdir=/", *words, uid=uid, input=input, **env)

    def output(self, job: int, name: str = "anna") -> str:
        """What a job has printed."""
        path = self.place / name / f"{job}.out"
        return path.read_text() if path.exists() else ""

    def state(self, job: int) -> str:
        """Slurm's state of a job."""
        text = self.run("scontrol", "show", "job", job).out
        return text.partition("JobState=")[2].partition(" ")[0]

    def ends(self, *jobs: int) -> None:
        """Wait until these jobs have ended, and all of them well."""

        def ended() -> bool:
            return not self.run("squeue", "--noheader").out.strip()

        try:
            until(ended, "the jobs end", _LONG)
        except TimeoutError as error:
            raise AssertionError(self.run("squeue").out + self.logs()) from error
        states = {job: self.state(job) for job in jobs}
        assert set(states.values()) <= {"COMPLETED"}, (states, self.logs())

    def restart_slurmd(self) -> None:
        """Kill slurmd alone, and start another: the jobs go on."""
        os.kill(self.slurmd.pid, signal.SIGKILL)
        self.slurmd.finish()
        self.slurmd = self.start("slurmd", "-D")

    def slots(self) -> list[str]:
        """The slots of jobs."""
        slices = Path(f"/proc/{self._inside.pid}/root/run/hami/slices")
        return sorted(each.name for each in slices.iterdir() if each.name.startswith("job-"))

    def logs(self) -> str:
        """The ends of Slurm's logs."""
        names = ("slurmctld.log", "slurmd.log")
        return "\n".join((self.place / name).read_text()[-3000:] for name in names)

    def close(self) -> None:
        """End all that runs on the node."""
        self._stack.close()

    def _end_all(self) -> None:
        """Kill all processes of the mount namespace: nobody else has started one there."""
        mine = Path(f"/proc/{self._inside.pid}/ns/mnt").stat().st_ino

        def others() -> Iterator[int]:
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    pid = int(process.name)
                    if (process / "ns" / "mnt").stat().st_ino == mine and pid != self._inside.pid:
                        yield pid

        def is_empty() -> bool:
            for pid in others():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # Those of this test become zombies, which have no namespace.
            return not list(others())

        until(is_empty, "the node's processes have ended")
        for group in Path("/sys/fs/cgroup").glob("*/slurm_*"):
            with contextlib.suppress(OSError):
                group.rmdir()


def _free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
