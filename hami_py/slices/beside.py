"""Slices are found by the path of the preload library: they are beside it.

    <slice>/libvgpu.so    a link to a kept copy of the library; LD_PRELOAD names the link
            layers        the slices of its programs, outermost first, if others are around it

The preload library finds its slices by the same rules (``interposer/slice/src/current.rs``). So a
launcher that clears the environment and keeps ``LD_PRELOAD`` keeps the limits. ``HAMI_SLICE`` has
the same directories: for people, and to find processes that have lost ``LD_PRELOAD``.

The library is kept outside of the package and of the slices. So an upgrade or a removal of the
package changes nothing for slices that exist. If a slice's files vanish, the loader still finds the
kept copy, which ``LD_PRELOAD`` names too, and the copy refuses CUDA.
"""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hami_py.config import ACCOUNT, HAMI_SLICE, LD_PRELOAD, LIBRARY_NAME, LIMITS, Settings
from hami_py.slices.processes import (
    LAYERS,
    environment_of,
    libraries_in,
    listed,
    mapped_files,
    value_of,
)
from hami_py.slices.programs import why_not_loadable

WITHIN = "in-"
"""How the names of a slice's directories begin: for programs that joined from other slices."""

KEPT = "kept-for-slices"
"""A file beside a kept copy: without a slice, the copy refuses CUDA."""

_DIGITS = 16


def own_slices(settings: Settings) -> tuple[Path, ...]:
    """The slices that this process was started in, outermost first, without a container's own."""
    library = _preloaded(settings)
    return () if library is None else _named(library)


def directories(settings: Settings) -> list[Path]:
    """All slices of this process, outermost first: a container's own is the outermost."""
    library = _preloaded(settings) or loaded_library(settings)
    if library is None:
        return []
    own = container_slice(library)
    return [*([own] if own else ()), *_named(library)]


def container_slice(library: Path) -> Path | None:
    """The slice in the directory of the library's file; None = there is none."""
    with suppress(OSError, RuntimeError):
        directory = library.resolve(strict=True).parent
        if _is_slice(directory):
            return directory
    return None


def loaded_library(settings: Settings) -> Path | None:
    """The file of our library if it is mapped into this process; without ``/proc`` unknown."""
    found = (path for path in mapped_files("self") if Path(path).name == settings.library.name)
    return next(map(Path, found), None)


def link(directory: Path, around: Sequence[Path], library: Path) -> None:
    """Make a slice findable: link the library into it, and list the slices around it."""
    (directory / LIBRARY_NAME).symlink_to(library)
    if around:
        list_layers(directory, [*around, directory])


def link_within(directory: Path, layers: Sequence[Path], library: Path) -> Path:
    """The path of the library for programs of an existing slice.

    ``layers`` are their slices, outermost first, with this one. A slice without a library gets
    this one.
    """
    # A slice keeps the library with which it was created.
    if not (directory / LIBRARY_NAME).exists():
        (directory / LIBRARY_NAME).unlink(missing_ok=True)
        (directory / LIBRARY_NAME).symlink_to(library)
    if list(layers) == (listed(directory) or [directory]):
        return directory / LIBRARY_NAME
    # A program of other slices has joined it.
    digest = _digest("\n".join(map(str, layers)).encode(errors="surrogateescape"))
    within = directory / f"{WITHIN}{digest}"
    if not within.exists():
        aside = Path(tempfile.mkdtemp(prefix=f"{WITHIN}new-", dir=directory))
        (aside / LIBRARY_NAME).symlink_to((directory / LIBRARY_NAME).resolve())
        list_layers(aside, layers)
        try:
            aside.rename(within)
        except OSError:
            # Another process was first.
            shutil.rmtree(aside)
    return within / LIBRARY_NAME


def keep(library: Path, settings: Settings) -> Path:
    """The copy of the library that is kept for slices, created if it is missing.

    It is in the user's data directory, else in the runtime directory, else nowhere: then it is the
    library itself. In a container it is the container's library, so that each program has one.
    """
    own = _preloaded(settings) or loaded_library(settings)
    if own is not None and container_slice(own):
        return own.resolve()
    for place in _places(settings):
        with suppress(OSError):
            return _copy(library, place)
    return library


def _places(settings: Settings) -> Iterator[Path]:
    with suppress(KeyError):
        data = settings.environment.get("XDG_DATA_HOME", "")
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
        yield (Path(data) if data.startswith("/") else home / ".local" / "share") / "hami"
    yield settings.runtime_directory


def _copy(library: Path, place: Path) -> Path:
    """The copy in this place.

    Raises:
        OSError: there cannot be one, or another user could replace it.
    """
    directory = place / "library" / _digest(library.read_bytes())
    copy = directory / LIBRARY_NAME
    if not copy.exists():
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=directory.parent))
        try:
            shutil.copyfile(library, aside / LIBRARY_NAME)
            (aside / KEPT).write_text("hami-py keeps this library for the slices that use it.\n")
            aside.chmod(0o755)
            aside.rename(directory)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            if not copy.exists():
                raise
    if any(path.stat().st_uid != os.geteuid() for path in (directory.parent, directory, copy)):
        raise PermissionError(copy)
    if why_not_loadable(copy) is not None or set(" :$") & set(str(copy)):
        raise OSError(0, "it cannot be loaded from there", str(copy))
    return copy


def _preloaded(settings: Settings) -> Path | None:
    """The path in ``LD_PRELOAD`` by which this process has loaded the library.

    A program may have changed its environment, so that of its start counts, if its present one does
    not name the library.
    """
    entries = libraries_in(settings.environment.get(LD_PRELOAD, ""))
    if not entries and loaded_library(settings) is not None:
        with suppress(OSError):
            entries = libraries_in(value_of(environment_of(os.getpid()), LD_PRELOAD))
    return Path(entries[0]) if entries else None


def _named(library: Path) -> tuple[Path, ...]:
    """The slices in the directory of the path by which the library was loaded."""
    directory = library.parent
    own = container_slice(library)
    if own is not None and own == directory.resolve():
        return ()
    layers = listed(directory)
    if layers:
        return tuple(layers)
    # A slice whose files are gone is still one: then the library refuses CUDA.
    is_gone = not library.exists() or (
        library.is_symlink() and library.resolve().with_name(KEPT).exists()
    )
    return (directory,) if is_gone or _is_slice(directory) else ()


def list_layers(directory: Path, layers: Sequence[Path]) -> None:
    """List the slices of a slice's programs, outermost first."""
    (directory / LAYERS).write_bytes(b"".join(os.fsencode(path) + b"\n" for path in layers))


def _is_slice(directory: Path) -> bool:
    """One of the two files alone is a damaged slice."""
    return (directory / LIMITS).exists() or (directory / ACCOUNT).exists()


def without_slice(base: Mapping[str, str]) -> dict[str, str]:
    """An environment without the slice that it names."""
    return {name: value for name, value in base.items() if name not in {LD_PRELOAD, HAMI_SLICE}}


def _digest(data: bytes) -> str:
    # OpenSSL takes longer to load than the rest of this package, and `import hami_py` needs none.
    import hashlib  # noqa: PLC0415

    return hashlib.sha256(data).hexdigest()[:_DIGITS]
