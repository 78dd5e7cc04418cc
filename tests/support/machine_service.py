"""`hami machine` with the directories of a test: RUNTIME STATE POLICY."""

import sys
from pathlib import Path

from hami_py import config
from hami_py.cli.service import run_service
from hami_py.machine.service import MachineService
from hami_py.node.paths import Paths

runtime, state, policy = map(Path, sys.argv[1:])
run_service(MachineService(config.read().library, Paths(runtime, state), policy))
