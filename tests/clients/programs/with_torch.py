"""PyTorch: where the machine has it and a GPU; its CUDA runtime does not run on a stub driver."""

import client
import torch


class Torch:
    out_of_memory = torch.cuda.OutOfMemoryError

    def total(self) -> int:
        _free, total = torch.cuda.mem_get_info(0)
        return int(total)

    def allocate(self, size: int) -> object:
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    def round_trip(self, data: bytes) -> bytes:
        source = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return bytes((source.cuda() + 0).cpu().numpy().tobytes())

    def launch(self, count: int) -> None:
        matrix = torch.ones(1024, 1024, device="cuda")
        for _ in range(count):
            torch.matmul(matrix, matrix)
        torch.cuda.synchronize()


if __name__ == "__main__":
    client.main(Torch)
