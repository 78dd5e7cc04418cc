"""The library's file: its requirements, its exports, and how it is linked.

Every program of a container needs all that the preload library needs.
"""

import platform
import re

from support.artifacts import ROOT
from support.elf import exported, needed, readelf

LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
LOOKUPS = {"dlsym", "dlvsym"}


def hooks():
    """The symbols of the hook table whose rows put a wrapper in place."""
    table = (ROOT / "interposer" / "table" / "src" / "lib.rs").read_text()
    return set(re.findall(r"^ +(\w+) => [\w: ]+;", table, re.MULTILINE))


def test_it_needs_nothing_but_the_c_library(artifacts):
    allowed = {"libc.so.6", "libdl.so.2", "libpthread.so.0", LOADERS[platform.machine()]}
    assert needed(artifacts.library) <= allowed


def test_it_loads_on_glibc_2_17(artifacts):
    versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", readelf("--version-info", artifacts.library))
    assert versions
    assert max((int(major), int(minor)) for major, minor in versions) <= (2, 17)


def test_it_needs_no_private_interface_of_the_c_library(artifacts):
    assert "GLIBC_PRIVATE" not in readelf("--version-info", artifacts.library)


def test_it_exports_the_hook_table_and_the_lookups_and_nothing_else(artifacts):
    """Any other export would replace a program's own symbol of that name."""
    table = hooks()
    assert {"cuMemAlloc_v2", "cuInit", "nvmlDeviceGetMemoryInfo", "cuLaunchKernel"} <= table
    assert exported(artifacts.library) == table | LOOKUPS


def test_its_exports_have_no_version_of_their_own(artifacts):
    """The driver's symbols have none, and one export of dlsym serves references of any version."""
    symbols = readelf("--dyn-syms", artifacts.library)
    assert not re.findall(r"^.*\b(?:dlsym|dlvsym|cu\w+|nvml\w+)@.*$", symbols, re.MULTILINE)


def test_its_code_is_not_relocated(artifacts):
    dynamic = readelf("--dynamic", artifacts.library)
    assert "TEXTREL" not in dynamic


def test_it_has_no_executable_stack_and_no_writable_code(artifacts):
    segments = [
        line.split() for line in readelf("--segments", artifacts.library).splitlines() if line
    ]
    flags = {fields[0]: "".join(fields[6:-1]) for fields in segments if fields[0] in {"GNU_STACK"}}
    assert flags == {"GNU_STACK": "RW"}
    loads = ["".join(fields[6:-1]) for fields in segments if fields[0] == "LOAD"]
    assert loads
    assert not [flags for flags in loads if "W" in flags and "E" in flags]


def test_it_runs_no_code_when_it_is_loaded_or_unloaded(artifacts):
    """But for one function of Rust's standard library, which only notes argc and argv."""
    dynamic = readelf("--dynamic", artifacts.library)
    for tag in ("INIT", "FINI", "INIT_ARRAY", "FINI_ARRAY", "PREINIT_ARRAY"):
        sizes = re.findall(rf"\({tag}SZ\)\s+(\d+)", dynamic)
        allowed = ["8"] if tag == "INIT_ARRAY" else ["0"]
        assert sizes in ([], allowed), f"{tag} has {sizes} bytes"
        if not tag.endswith("ARRAY"):
            assert f"({tag})" not in dynamic


def test_the_loader_writes_to_few_of_its_pages(artifacts):
    """Every process copies each page with a relocation. A table with pointers adds many: names
    belong into one text, and rows have positions in it.
    """
    relocations = readelf("--relocs", artifacts.library)
    offsets = re.findall(r"^([0-9a-f]{16}) .* R_\w+", relocations, re.MULTILINE)
    assert len(offsets) > 500
    assert len({int(offset, 16) // 4096 for offset in offsets}) <= 7


def test_it_takes_no_static_tls(artifacts):
    """A library with static TLS cannot be loaded late, and takes from a small reserve if it is."""
    assert "STATIC_TLS" not in readelf("--dynamic", artifacts.library)
