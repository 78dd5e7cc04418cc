"""Every symbol of the driver has a policy, also symbols that NVIDIA added later."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.artifacts import ROOT
from support.elf import exported

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

POLICY = ROOT / "interposer" / "policy.toml"
LIBRARIES = {"cuda": "cu", "nvml": "nvml"}


def entries(library):
    """(policy, reason, symbols) of the policy file."""
    for group in tomllib.loads(POLICY.read_text())[library]:
        yield group["policy"], group["reason"], group["symbols"]


def declared(library, prefix):
    """The symbols that NVIDIA's header declares, as the generator wrote them down."""
    text = Path(ROOT / "interposer" / "sys" / "src" / f"{library}.rs").read_text()
    return set(re.findall(rf"^    \(({prefix}\w+), \$then", text, re.MULTILINE))


@pytest.mark.parametrize(("library", "prefix"), LIBRARIES.items())
def test_every_symbol_is_hooked_or_has_a_policy_and_never_both(library, prefix, artifacts):
    hooked = {name for name in exported(artifacts.library) if name.startswith(prefix)}
    listed = Counter(name for _, _, symbols in entries(library) for name in symbols)
    assert {name for name, count in listed.items() if count > 1} == set()
    assert hooked & set(listed) == set()
    assert hooked | set(listed) == declared(library, prefix)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_policy_is_one_of_three_and_has_a_reason(library):
    for policy, reason, symbols in entries(library):
        assert policy in {"pass", "refuse", "undecided"}
        assert len(reason) > 10
        assert symbols


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_symbol_is_undecided(library):
    assert {policy for policy, _, _ in entries(library)} <= {"pass", "refuse"}
