"""msgspec prepares a type at its first use, without a lock: threads must find it prepared."""

import subprocess
import sys

#: All threads decode at once what a command reads first.
PROGRAM = """
import sys, threading
from hami_py.kube.lists import Page, decoded
from hami_py.overview.objects import AgentPod, SeenNode, SeenPod
sys.setswitchinterval(1e-6)
page = b'{"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}'
start = threading.Barrier(8)

def decode(kind):
    start.wait()
    decoded(page, Page)
    decoded(b'{"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {}}', kind)

kinds = (SeenNode, SeenPod, AgentPod, SeenPod) * 2
threads = [threading.Thread(target=decode, args=(kind,)) for kind in kinds]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_the_first_use_in_many_threads_is_safe() -> None:
    for _ in range(20):
        done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, timeout=60)
        assert done.returncode == 0
