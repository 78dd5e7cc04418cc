"""Programs that have more rights than the user who starts them: setuid, file capabilities.

The library is in /etc/ld.so.preload, as in a pod. The loader loads it into such programs too, and
the user has chosen their environment.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.requirements import skip_or_fail
from support.running import run
from support.slices import GIB, make

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes such programs")

#: The test's folder is /mnt, which every user can reach, and /etc has another ld.so.preload.
SCRIPT = """
mount --bind $PLACE /mnt && mount --bind /mnt/etc /etc &&
exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/privileged
"""


@pytest.fixture
def start(artifacts, program, tmp_path):
    """`start(rights, folder)` is a run of the program by an ordinary user in such a namespace.

    `folder` is the test's, and gets the library.
    """
    shutil.copy(program("privileged"), tmp_path / "privileged")
    shutil.copy(artifacts.libcuda, tmp_path)
    (tmp_path / "etc").mkdir()
    shutil.copy("/etc/ld.so.cache", tmp_path / "etc")
    (tmp_path / "created").mkdir()
    (tmp_path / "created").chmod(0o777)
    tmp_path.chmod(0o755)

    def begin(rights, folder):
        own = tmp_path / "privileged"
        if rights == "setuid":
            own.chmod(0o4755)
        elif rights == "capabilities":
            if shutil.which("setcap") is None:
                skip_or_fail("setcap is not here")
            subprocess.run(["setcap", "cap_net_raw+ep", own], check=True, timeout=60)
        shutil.copy(artifacts.library, folder / "libvgpu.so")
        library = Path("/mnt") / folder.relative_to(tmp_path) / "libvgpu.so"
        (tmp_path / "etc" / "ld.so.preload").write_text(f"{library}\n")
        env = {
            "PLACE": str(tmp_path),
            "LIBCUDA": "/mnt/libcuda.so.1",
            "STUB_GPU_PROFILE": "a100",
            "CUDA_DEVICE_MEMORY_LIMIT": "1g",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/mnt/created/shared",
        }
        return run(["unshare", "--mount", "sh", "-c", SCRIPT], env)

    return begin


@pytest.mark.parametrize("rights", ["ordinary", "setuid", "capabilities"])
def test_a_privileged_program_reads_no_variable_and_creates_no_file(start, tmp_path, rights):
    done = start(rights, tmp_path)
    assert (done.code, done.err) == (0, "")
    is_ordinary = rights == "ordinary"
    assert done.lines[0] == f"privileged={int(not is_ordinary)}"
    # What the library creates for the variables, and the limit that they set.
    created = [path.name for path in (tmp_path / "created").iterdir()]
    assert created == (["shared.hami"] if is_ordinary else [])
    assert (f"total={GIB}" in done.lines[2]) == is_ordinary


@pytest.mark.parametrize("rights", ["setuid", "capabilities"])
def test_the_limits_beside_the_library_hold_in_a_privileged_program(start, gpu, tmp_path, rights):
    slice = make(tmp_path / "slice", dict.fromkeys(gpu.uuids(), 2 * GIB))
    slice.chmod(0o755)
    (slice / "account").chmod(0o666)
    done = start(rights, slice)
    assert (done.code, done.err) == (0, "")
    assert done.lines[0] == "privileged=1"
    assert f"total={2 * GIB}" in done.lines[2]
