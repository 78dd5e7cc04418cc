"""Where the built files are that the tests run.

`make build` puts them at fixed places; two variables of the environment point elsewhere, for a
build of one's own. Nothing else in the tests reads the environment for this.
"""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Artifacts:
    """The stub GPU's folder and the preload library.

    ``HAMI_TEST_STUB_DIR`` and ``HAMI_TEST_LIBRARY`` override the defaults.
    """

    stub_dir: Path
    library: Path

    @property
    def libcuda(self) -> Path:
        """The stub driver, under the name that programs open."""
        return self.stub_dir / "libcuda.so.1"

    def older_driver(self, version: str) -> Path:
        """The folder of the stub driver of an older CUDA version, such as 12.2."""
        return self.stub_dir / version

    @property
    def stub_gpu(self) -> Path:
        """The stub's server."""
        return self.stub_dir / "stub-gpu"

    @property
    def clock(self) -> Path:
        """The virtual clock, which is preloaded."""
        return self.stub_dir / "libstub-clock.so"


def find() -> Artifacts:
    """The artifacts; a missing one is an error, because a test that did not run proves nothing."""
    found = Artifacts(
        stub_dir=Path(os.environ.get("HAMI_TEST_STUB_DIR", ROOT / "build" / "stub")),
        library=Path(os.environ.get("HAMI_TEST_LIBRARY", ROOT / "hami_py" / "lib" / "libvgpu.so")),
    )
    needed = [
        found.libcuda,
        found.stub_dir / "libcuda.so",
        found.stub_dir / "libnvidia-ml.so.1",
        found.stub_gpu,
        found.clock,
        found.library,
    ]
    missing = [str(path) for path in needed if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"{', '.join(missing)}: not built; run `make build`")
    return found
