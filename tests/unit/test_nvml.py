"""Cards through NVML: errors and MIG, on a made-up NVML."""

from collections.abc import Callable
from types import SimpleNamespace

import pynvml
import pytest

from hami_py import Card, DriverError, NoDevice, NoDriver, gpu
from hami_py.gpu import nvml as nvml_module
from hami_py.gpu.inventory import inventory
from support.slices import GIB


class Nvml:
    """The few NVML calls we make. Two GPUs; the second is cut into two MIG devices."""

    def __init__(self) -> None:
        self.initialised = 0
        self.names = ["gpu0", "gpu1"]

    def nvmlInit(self) -> None:
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self.initialised -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self.names[index]

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        if handle == "gpu0":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [pynvml.NVML_DEVICE_MIG_ENABLE, pynvml.NVML_DEVICE_MIG_ENABLE]

    def nvmlDeviceGetIndex(self, handle: str) -> int:
        return 0 if handle == "gpu0" else 1

    def nvmlDeviceGetGpuInstanceProfileInfo(self, handle: str, profile: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index not in (0, 3):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return f"mig{index}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        size = 5 * GIB if handle.startswith("mig") else 40 * GIB
        return SimpleNamespace(total=size, free=size - GIB)

    def nvmlDeviceGetName(self, handle: str) -> str:
        return f"NVIDIA {handle}"

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle.upper()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    made_up = Nvml()
    for name in dir(made_up):
        if name.startswith("nvml"):
            monkeypatch.setattr(pynvml, name, getattr(made_up, name))
    return made_up


def failing(code: int) -> Callable[..., None]:
    def fail(*_arguments: object) -> None:
        raise pynvml.NVMLError(code)

    return fail


def lose_first(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Let this call fail for the first GPU."""
    working = getattr(pynvml, call)

    def get(card: object) -> object:
        if card in (0, "gpu0"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return working(card)

    monkeypatch.setattr(pynvml, call, get)


def test_mig_slices_replace_their_gpu(nvml: Nvml) -> None:
    assert gpu.cards() == [
        Card(0, "GPU0", "NVIDIA gpu0", 40 * GIB),
        Card(1, "MIG0", "NVIDIA mig0", 5 * GIB),
        Card(2, "MIG3", "NVIDIA mig3", 5 * GIB),
    ]
    assert gpu.memory_free(["MIG3", "unknown"]) == {"MIG3": 4 * GIB}
    assert gpu.driver_version() == "580.95.05"
    assert nvml.initialised == 0


def test_free_memory_has_the_uuid_as_the_caller_wrote_it(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: f"MIG-{handle}")
    assert gpu.memory_free(["GPU-MIG3"]) == {"GPU-MIG3": 4 * GIB}


def test_no_card_is_an_error(nvml: Nvml) -> None:
    nvml.names = []
    with pytest.raises(NoDevice, match="the driver shows no card"):
        gpu.cards()
    assert nvml.initialised == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, NoDriver),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, NoDriver),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, NoDriver),
        (pynvml.NVML_ERROR_NO_PERMISSION, DriverError),
        (pynvml.NVML_ERROR_UNKNOWN, DriverError),
    ],
)
def test_an_nvml_that_does_not_start(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", failing(code))
    for call in (gpu.cards, gpu.driver_version):
        with pytest.raises(error) as caught:
            call()
        assert "; " in str(caught.value)
    assert gpu.memory_free(["GPU0"]) == {}


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetHandleByIndex"])
def test_a_lost_card_is_reported(nvml: Nvml, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(pynvml, call, failing(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(DriverError, match="lost"):
        gpu.cards()
    assert nvml.initialised == 0


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"])
def test_the_free_memory_of_the_other_cards_is_known(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    lose_first(monkeypatch, call)
    assert gpu.memory_free(["GPU0", "MIG3"]) == {"MIG3": 4 * GIB}


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"])
def test_the_inventory_has_the_cards_that_answer(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    monkeypatch.setattr(nvml_module, "_silent", {})
    lose_first(monkeypatch, call)
    found = inventory(slots=4)
    assert [(card.uuid, card.index) for card in found.cards] == [("MIG0", 1), ("MIG3", 2)]
    assert (set(found.driver_memory), found.left_out) == ({"MIG0", "MIG3"}, {0: "GPU is lost"})
    assert "card 0 is left out, because it does not answer: GPU is lost" in caplog.text


def test_a_card_that_is_left_out_is_logged_when_that_changes(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nvml_module, "_silent", {})
    for _ in range(2):
        with monkeypatch.context() as lost:
            lose_first(lost, "nvmlDeviceGetHandleByIndex")
            assert [[*nvml_module.handles()] for _ in range(3)] == [["mig0", "mig3"]] * 3
        assert [[*nvml_module.handles()] for _ in range(3)] == [["gpu0", "mig0", "mig3"]] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "card 0 is left out, because it does not answer: GPU is lost",
        "card 0 answers again",
    ] * 2
