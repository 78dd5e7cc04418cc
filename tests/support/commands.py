"""The command line of hami, from this checkout, on a stub GPU."""

import sys
from pathlib import Path

from support import coordinator
from support.artifacts import ROOT, Artifacts
from support.running import Run, run
from support.stub import StubServer


class HamiCommand:
    """``hami(gpu, "devices")`` runs it; None is no GPU. It must leave no slice behind."""

    def __init__(self, artifacts: Artifacts, runtime: Path) -> None:
        runtime.mkdir(mode=0o700)
        self._artifacts, self._runtime = artifacts, runtime

    def env(self, gpu: StubServer | None) -> dict[str, str]:
        """The environment for it."""
        return {
            **(gpu.env if gpu else {}),
            "PYTHONPATH": str(ROOT),
            "HAMI_RUNTIME_DIR": str(self._runtime),
            "XDG_DATA_HOME": str(self._runtime / "data"),
            "HAMI_LIBRARY": str(self._artifacts.library),
        }

    def __call__(
        self, gpu: StubServer | None, *arguments: object, env: dict[str, str] | None = None
    ) -> Run:
        command = [sys.executable, "-m", "hami_py", *map(str, arguments)]
        done = run(command, {**self.env(gpu), **(env or {})})
        assert self.slices() == [], "slices were left behind"
        # It would end by itself, some time after the last slice.
        coordinator.end(self._runtime / "hami")
        return done

    def slices(self) -> list[Path]:
        """The slices that there are now."""
        slices = self._runtime / "hami" / "slices"
        return sorted(slices.iterdir()) if slices.exists() else []
