"""Checks whether a limit would hold for a program, from the program's file.

The preload library is loaded only by the dynamic loader of glibc. So a limit does not hold for a
program without a loader, with another loader, or with privileges for which the loader ignores the
environment. A program crashes if one of its libraries has a variable with the name of one of our
functions. The program is not run.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from hami_py import slices
from hami_py.cli.doctor.loading import is_musl
from hami_py.cli.doctor.trial import Found, last_line, run
from hami_py.config import LD_PRELOAD, Settings
from hami_py.errors import CannotRun, HamiError, UnsupportedPlatform
from hami_py.model import legible
from hami_py.slices import elf

MAX_SCRIPTS = 4
"""Scripts whose interpreters are scripts; the kernel has the same limit."""

_GLIBC_LOADER = "ld-linux-"
"""How the names of glibc's loaders begin."""

Step = tuple[str, Callable[[], Found]]


def checks(command: Sequence[str], settings: Settings) -> Iterator[Step]:
    """The checks of a command's program, by name; each depends on those before it.

    Raises:
        CannotRun: the program does not exist, or cannot be read.
    """
    plug_in = Path(command[0])
    is_loader = plug_in.name.startswith(_GLIBC_LOADER)
    if ".so" in plug_in.name and plug_in.is_file() and not is_loader:
        yield "library", partial(_library, plug_in, settings)
        return
    path = _find(command[0], settings)
    if path.name.startswith(_GLIBC_LOADER):
        started = next((word for word in command[1:] if Path(word).is_file()), None)
        if started is None:
            fix = "write the path of the program that it starts after it"
            raise CannotRun("program", f"{path} is a loader", fix)
        yield "loader", partial(_text, f"{path} starts {legible(started)}")
        path = Path(started)
    script = _script(path)
    for _ in range(MAX_SCRIPTS):
        if script is None:
            break
        yield (
            "script",
            partial(_text, f"{path} is run by {script}; programs that it starts are not checked"),
        )
        path = _find(script, settings)
        script = _script(path)
    yield "program", partial(_text, str(path))
    file = _read(path)
    yield "format", partial(_format, file)
    if file is None:
        return
    yield "linking", partial(_linking, file)
    yield "privileges", partial(privileges, path)
    yield "loading", partial(_loading, path, file, settings)


def _text(detail: str) -> str:
    return detail


def _find(name: str, settings: Settings) -> Path:
    found = shutil.which(name, path=settings.environment.get("PATH", os.defpath))
    if found is None:
        if Path(name).is_file():
            fix = f"run `chmod +x {legible(name)}`, or check the program that runs it"
            raise CannotRun("program", f"{legible(name)} is not executable", fix, status=126)
        fix = "check its name and PATH"
        raise CannotRun("program", f"{legible(name)} was not found", fix, status=127)
    return Path(found)


def _script(path: Path) -> str | None:
    """The program in a script's first line; None if the file is not a script."""
    try:
        with path.open("rb") as file:
            line = file.readline(256)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if words and Path(words[0]).name == "env":
        # `env` looks up the next word in PATH.
        named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return named[0] if named else words[0]
    return words[0] if words else None


def _read(path: Path) -> elf.Elf | None:
    try:
        return elf.read(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> CannotRun:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CannotRun("program", f"{path}: {why}", "make it readable, or check another program")


def _format(file: elf.Elf | None) -> str:
    machine = os.uname().machine
    if file is None:
        fix = "check the program that runs it"
        raise UnsupportedPlatform("format", "it is neither an ELF program nor a script", fix)
    if file.bits != 64:
        why = f"it is a {file.bits}-bit program: the loader skips our library, and no limit holds"
        raise UnsupportedPlatform("format", why, "use its 64-bit build; CUDA has no other")
    if file.machine != elf.MACHINES.get(machine):
        why = f"it is built for another processor (ELF machine {file.machine}), not for {machine}"
        raise UnsupportedPlatform("format", why, f"use its build for {machine}")
    return f"64-bit, {machine}"


def _library(path: Path, settings: Settings) -> str:
    """Check a shared library that a program opens while it runs."""
    _format(_read(path))
    _refuse_variables([path], slices.require_library(settings.library))
    return f"{path} has no variable with the name of a driver function"


def _linking(file: elf.Elf) -> str:
    interpreter = file.interpreter
    if interpreter is None:
        why = "it is statically linked: no library can be preloaded, and no limit holds"
        raise UnsupportedPlatform("linking", why, "use a dynamically linked build")
    if is_musl(interpreter):
        why = f"it is linked with musl ({interpreter}), and cannot start in a slice (exit code 127)"
        raise UnsupportedPlatform("linking", why, "use a build for glibc")
    if not Path(interpreter).name.startswith(_GLIBC_LOADER):
        why = f"its loader {interpreter} is not glibc's, and may not preload libraries"
        raise UnsupportedPlatform("linking", why, "use a build for glibc")
    return f"dynamically linked, loader {interpreter}"


def privileges(path: Path) -> str:
    """Check for privileges that a program gains when it starts: then LD_PRELOAD is ignored."""
    gains = slices.gained_rights(path)
    if not gains:
        return "none gained when it starts"
    what = " and ".join(gains)
    if _gains_are_void(path):
        return f"{what}, without effect here"
    why = f"it has {what}: the loader ignores LD_PRELOAD, and no limit holds"
    fix = (
        "run `hami run` inside of it (like `sudo hami run …`), or grant the privileges to the user"
    )
    raise HamiError("privileges", why, fix)


def _gains_are_void(path: Path) -> bool:
    """Whether the file system or the process prevents the gain: see execve(2)."""
    if os.statvfs(path).f_flag & os.ST_NOSUID:
        return True
    return "NoNewPrivs:\t1" in Path("/proc/self/status").read_text()


def _loading(path: Path, file: elf.Elf, settings: Settings) -> str:
    """Let the program's own loader list what it would load, without running the program."""
    library = slices.require_library(settings.library)
    environment = {**settings.environment, LD_PRELOAD: str(library)}
    done = run([str(file.interpreter), "--list", str(path)], environment)
    if done.returncode or str(library) not in done.stdout:
        fix = "check the output of `ldd`; the library needs glibc 2.17 or newer"
        raise HamiError("loading", f"{library} is not loaded: {last_line(done)}", fix)
    listed = re.findall(r"(/.*) \(0x[0-9a-f]+\)$", done.stdout, re.MULTILINE)
    _refuse_variables([Path(each) for each in listed if each != str(library)], library)
    return f"{library} is loaded first; limits hold"


def _refuse_variables(files: list[Path], library: Path) -> None:
    """Check for variables that the loader binds to our functions: writing to one is a crash."""
    functions = elf.functions(library)
    for file in files:
        if found := sorted(functions & elf.shared_variables(file)):
            why = (
                f"{file} exports a variable {found[0].decode()}: the loader binds it to our "
                "function of this name, and a program that writes it crashes"
            )
            fix = "link it with `-Wl,-Bsymbolic`, or hide the variable (`-fvisibility=hidden`)"
            raise HamiError("variables", why, fix)
