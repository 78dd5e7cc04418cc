"""The page of NVIDIA's DCGM exporter for some cards, as its release 4.8 writes it.

Fields and help texts are those of its default counters, labels those of a cluster:
https://github.com/NVIDIA/dcgm-exporter. The values are our own.
"""

import contextlib
import http.server
import threading
from collections.abc import Iterator, Sequence

#: Field, help text, and the value for the first card. Each other card has ten percent more.
_FIELDS = (
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", 1410),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", 40),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", 100),
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", 50),
    ("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", 0),
    ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", 20000),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", 0.4),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active.", 0.2),
)

_LABELS = (
    'gpu="{index}",UUID="{uuid}",pci_bus_id="00000000:0{index}:00.0",device="nvidia{index}"'
    ',modelName="NVIDIA A100-SXM4-40GB",hostname="gpu-node",DCGM_FI_DRIVER_VERSION="580.95.05"'
    ',container="main",namespace="red",pod="red-1",pod_uid=""'
)


def value(field: str, index: int) -> float:
    """The texts of a card on the page."""
    (first,) = [number for name, _, number in _FIELDS if name == field]
    return first * (1 + index / 10)


def page(uuids: Sequence[str]) -> str:
    """The page for the cards of one machine."""
    lines: list[str] = []
    for field, text, _ in _FIELDS:
        lines += [f"# HELP {field} {text}", f"# TYPE {field} gauge"]
        for index, uuid in enumerate(uuids):
            labels = _LABELS.format(index=index, uuid=uuid)
            lines.append(f"{field}{{{labels}}} {value(field, index):f}")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def exporter(uuids: Sequence[str]) -> Iterator[str]:
    """The address of a server with this page."""
    text = page(uuids).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
