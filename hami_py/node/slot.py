"""A slot: the slice directory of a container, on a node.

    <slot>/limits         the limits page, 0644
           grants         the grants page, 0644
           account        the account file, 0666
           libvgpu.so     empty: the library is mounted over it

The directory belongs to the user that creates it: on a node, root. The container mounts it
read-only, and each of its files by itself: the account writable, and the installed library in place
of the empty file (``binds``). So a volume at the path of a file cannot replace it.
The library finds the other files beside itself. The account has mode 0666, so every user of the
container may write it, also a user whose id does not exist on the host. The read-only mount
protects the other files, also from the container's root.

The library is mounted and not copied into the slot, for two reasons: slots are on tmpfs, which many
distributions mount with ``noexec``, and a container that is restarted must keep its library.

A slot appears complete: its files are created in a temporary directory, which is then renamed. The
temporary directory is outside the directory of slots, because the coordinator reads that one.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hami_py._native import Account, GrantsPage, LimitRow, LimitsPage
from hami_py.config import ACCOUNT, GRANTS, LIBRARY_NAME, LIMITS
from hami_py.errors import StateError, state_errors

TEMPORARY = "new-slot-"
"""The prefix of the temporary directory. A process that is killed leaves one behind."""

_MODES = {LIMITS: 0o644, GRANTS: 0o644, ACCOUNT: 0o666}

FILES = tuple(_MODES)
"""The files of a slot besides the library's."""


@dataclass(frozen=True)
class Bind:
    """A bind mount of a container.

    Attributes:
        source: the path on the node.
        target: the path in the container.
        read_only: the container cannot write through it.
        no_exec: it is mounted so that no program starts from it.
    """

    source: Path
    target: Path
    read_only: bool
    no_exec: bool = False


def open_to_all(slot: Path) -> None:
    """Let everybody enter a slot: the users of a container may have any number."""
    slot.chmod(0o755)


def create(
    slot: Path,
    rows: Sequence[LimitRow],
    gang: bytes | None = None,
    finish: Callable[[Path], None] = open_to_all,
) -> None:
    """Create a slot.

    Args:
        slot: the new directory. Its parent, the directory of slots, must exist. The parent of that
            directory must be on the same file system, and this user must be able to write there.
        rows: the cards.
        gang: see ``LimitsPage.create``.
        finish: adds what is missing to the directory, and lets those enter it who may.

    Raises:
        StateError: it exists, or cannot be created. Then nothing of it is left.
        InvalidValue: a row is invalid.
    """
    if os.path.lexists(slot):
        raise StateError(f"slot {slot}", "it exists", "remove it first")
    with state_errors(
        f"slot {slot}", "free some space, and check the directory of slots and its parent"
    ):
        # Only this user can enter it until it is complete.
        aside = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=slot.parent.parent))
        try:
            LimitsPage.create(aside / LIMITS, rows, gang=gang)
            Account.create(aside / ACCOUNT)
            GrantsPage.create(aside / GRANTS)
            (aside / LIBRARY_NAME).touch()
            # The umask may have removed some bits of these modes.
            for name, mode in {**_MODES, LIBRARY_NAME: 0o644}.items():
                (aside / name).chmod(mode)
            finish(aside)
            aside.rename(slot)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


def binds(slot: Path, library: Path, target: Path) -> tuple[Bind, ...]:
    """The mounts that a container needs. The order matters: the others are inside the first.

    Args:
        slot: the slot on the node.
        library: the installed library on the node, which every user can read.
        target: where the container has the slot. Its library is ``target / "libvgpu.so"``.
    """
    return (
        Bind(slot, target, read_only=True),
        Bind(slot / LIMITS, target / LIMITS, read_only=True),
        Bind(slot / GRANTS, target / GRANTS, read_only=True),
        Bind(slot / ACCOUNT, target / ACCOUNT, read_only=False),
        Bind(library, target / LIBRARY_NAME, read_only=True),
    )
