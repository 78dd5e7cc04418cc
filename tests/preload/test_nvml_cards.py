"""NVML in a slice shows only its cards. NVML without us shows the others, to compare with."""

import re

import pytest

from support import slices
from support.elf import exported
from support.nvml import NOT_FOUND, asked
from support.running import run
from support.slices import GIB


@pytest.fixture
def names(stub_server):
    """A machine with four cards: the GPU, and every name of each card, from outside."""
    gpu = stub_server("a100,t4,a100,h100")
    question = """[
        {
            "uuid": nvmlDeviceGetUUID(handle),
            "serial": nvmlDeviceGetSerial(handle),
            "pci": nvmlDeviceGetPciInfo(handle).busId,
            "old_pci": nvmlDeviceGetPciInfo(handle).busId,
        }
        for handle in map(nvmlDeviceGetHandleByIndex, range(4))
    ]"""
    return gpu, asked(gpu.env, question)


def test_cards_outside_have_no_index_and_are_not_counted(names, program, slice_env):
    gpu, cards = names
    uuids = [card["uuid"] for card in cards]
    # In any order of rows: NVML's order counts.
    env = slice_env(gpu, {uuids[3]: GIB, uuids[1]: 2 * GIB})
    lines = run([program("nvml_cards")], env).lines
    assert [line for line in lines if "count" in line] == [
        "nvmlDeviceGetCount_v2(&count) -> 1 count=77",
        "nvmlDeviceGetCount_v2(&count) -> 0 count=2",
        "nvmlDeviceGetCount(&old_count) -> 0 count=2",
        "nvmlDeviceGetHandleByIndex_v2(count, &device) -> 2 untouched",
        "nvmlDeviceGetHandleByIndex(count, &device) -> 2 untouched",
    ]
    assert [line for line in lines if line.startswith("card")] == [
        f"card 0: index=0 uuid={uuids[1]} same=1",
        f"card 1: index=1 uuid={uuids[3]} same=1",
    ]


def test_a_card_of_the_slice_is_found_by_its_identifiers(names, program, slice_env):
    gpu, cards = names
    env = slice_env(gpu, {cards[1]["uuid"]: 2 * GIB, cards[3]["uuid"]: GIB})
    numbers = {1: f"0 index=0 total={2 * GIB}", 3: f"0 index=1 total={GIB}"}
    for kind in ("uuid", "serial", "pci", "old_pci"):
        arguments = [part for card in cards for part in (kind, card[kind])]
        found = run([program("nvml_cards"), *arguments], env).lines[-4:]
        assert found == [f"{kind} -> {numbers.get(i, '6 untouched')}" for i in range(4)]


def test_a_card_of_the_slice_is_found_by_its_versioned_uuid(names, slice_env):
    gpu, cards = names
    env = slice_env(gpu, {cards[1]["uuid"]: GIB})
    question = "nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUIDV({!r}.encode(), 1))"
    assert [asked(gpu.env, question.format(card["uuid"])) for card in cards] == [0, 1, 2, 3]
    inside = [asked(env, question.format(card["uuid"])) for card in cards]
    assert inside == [NOT_FOUND, 0, NOT_FOUND, NOT_FOUND]


def test_only_cards_of_every_layer_are_shown(names, slice_dir, preload):
    gpu, cards = names
    uuids = [card["uuid"] for card in cards]
    outer = slice_dir(dict.fromkeys(uuids[:3], GIB))
    inner = slice_dir(dict.fromkeys(uuids[1:], GIB))
    question = (
        "[nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(i)) for i in range(nvmlDeviceGetCount())]"
    )
    assert asked(preload(gpu, f"{outer}:{inner}"), question) == uuids[1:3]


@pytest.mark.parametrize("variables", [{}, {"CUDA_DEVICE_MEMORY_LIMIT": "1g"}])
def test_without_a_page_every_card_is_shown_as_without_us(names, program, by_variables, variables):
    gpu, cards = names
    arguments = [
        part for card in cards for kind in ("uuid", "serial") for part in (kind, card[kind])
    ]
    command = [program("nvml_cards"), *arguments]
    env = by_variables(gpu, **variables)
    limit_less = [re.sub(r"total=\d+", "", line) for line in run(command, env).lines]
    bare = [re.sub(r"total=\d+", "", line) for line in run(command, gpu.env).lines]
    assert limit_less == bare
    assert "nvmlDeviceGetCount_v2(&count) -> 0 count=4" in bare


def test_where_the_slice_is_refused_there_is_no_card(gpu, program, preload, slice_dir):
    uuid = gpu.uuids()[0]
    directory = slice_dir({uuid: GIB})
    (directory / "limits").write_bytes(b"")
    done = run([program("nvml_cards"), "uuid", uuid], preload(gpu, directory))
    assert "nvmlDeviceGetCount_v2(&count) -> 0 count=0" in done.lines
    assert "nvmlDeviceGetHandleByIndex_v2(count, &device) -> 2 untouched" in done.lines
    assert done.lines[-1] == f"uuid -> {NOT_FOUND} untouched"
    (line,) = done.err.splitlines()
    assert str(directory / "limits") in line


def test_a_mig_slice_has_an_index_in_the_slice(stub_server, program, slice_env):
    gpu = stub_server("a100-mig-1g,a100-mig-1g")
    second = gpu.uuids()[1]
    lines = run([program("nvml_cards")], slice_env(gpu, {second: GIB})).lines
    assert f"card 0: index=0 uuid={second} same=1" in lines


@pytest.fixture
def own_nvml(program, tmp_path):
    """The environment of a program with the NVML of nvml_mig_library.c: old, with GPUs cut up."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "libnvidia-ml.so.1").write_bytes(program("nvml_mig_library").read_bytes())
    return {"LD_LIBRARY_PATH": str(folder)}


def test_a_gpu_is_shown_for_the_slice_s_mig_slice_and_no_other_slice_of_it(
    own_nvml, artifacts, program, slice_dir
):
    bare = run([program("nvml_mig")], own_nvml).lines
    assert bare == ["0 GPU-0", "  0 MIG-00", "  2 MIG-01", "1 GPU-1", "  0 MIG-10", "  2 MIG-11"]
    env = {
        **own_nvml,
        **slices.environment(artifacts.library, slice_dir({"MIG-11": GIB})),
    }
    assert run([program("nvml_mig")], env).lines == ["0 GPU-1", "  2 MIG-11"]


def test_dlsym_finds_no_nvml_symbol_that_the_driver_lacks(own_nvml, artifacts, program):
    names = "\n".join(name for name in exported(artifacts.library) if name.startswith("nvml"))
    command = [program("missing_symbols"), "libnvidia-ml.so.1"]
    bare = run(command, own_nvml, input=names)
    limited = run(command, {**own_nvml, "LD_PRELOAD": str(artifacts.library)}, input=names)
    assert limited == bare
    (found,) = re.findall("^nvmlDeviceGetCount_v2: by handle 1, (.*)", bare.out, re.MULTILINE)
    (missing,) = re.findall("^nvmlDeviceGetCount: by handle 0, (.*)", bare.out, re.MULTILINE)
    assert ("in the global scope 1" in found, "in the global scope 0" in missing) == (True, True)
