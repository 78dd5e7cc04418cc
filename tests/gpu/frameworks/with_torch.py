"""PyTorch: its allocators, CUDA graphs, and data loaders beside a used GPU."""

import jobs
import torch
import torch.utils.data


def total() -> list[int]:
    return [torch.cuda.mem_get_info(0)[1], torch.cuda.get_device_properties(0).total_memory]


def fill() -> dict[str, object]:
    def allocate(size: int) -> object:
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    return jobs.fill(allocate, torch.cuda.OutOfMemoryError)


def recover() -> float:
    """After an out-of-memory error, freed memory can be used again."""
    fill()
    torch.cuda.empty_cache()
    return float(torch.ones(1 << 20, device="cuda").sum())


def matmul() -> list[float]:
    """Small whole numbers: exact in every order and precision."""
    left = torch.arange(512 * 512, device="cuda").reshape(512, 512).remainder(5).float() - 2
    product = left @ left.T
    return [float(product.sum()), float(product.trace()), float(product.abs().max())]


def graph() -> float:
    """Capture, then replay with another input."""
    source = torch.zeros(1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _warm_up = source * 2 + 1
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        result = source * 2 + 1
    source.fill_(3)
    recorded.replay()
    torch.cuda.synchronize()
    return float(result.sum())


def graphs() -> dict[str, object]:
    """Up to 16 CUDA graphs, each with 256 MiB of temporary memory; each is replayed at once."""

    def work() -> torch.Tensor:
        parts = [torch.ones(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
        return torch.stack([part.sum() for part in parts]).sum()

    torch.cuda.empty_cache()
    work()
    torch.cuda.synchronize()
    recorded, sums, text = [], [], ""
    try:
        for _ in range(16):
            one = torch.cuda.CUDAGraph()
            with torch.cuda.graph(one):
                result = work()
            recorded.append((one, result))
            one.replay()
            torch.cuda.synchronize()
            sums.append(int(result))
    except RuntimeError as error:
        # The end of the broken capture may fail too, and hide the first error.
        cause: BaseException | None = error
        while cause:
            text += str(cause)[:200] + "; "
            cause = cause.__context__
    return {"sums": sorted(set(sums)), "graphs": len(sums), "text": text}


class Numbers(torch.utils.data.Dataset):
    """0 to 63; on the GPU where the worker may use it."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((256,), float(index), device=self.device).cpu()


def workers(method: str, device: str) -> float:
    torch.ones(1, device="cuda")
    loader = torch.utils.data.DataLoader(
        Numbers(device), batch_size=8, num_workers=2, multiprocessing_context=method
    )
    return float(sum(batch.cuda().sum() for batch in loader))


if __name__ == "__main__":
    jobs.main(
        {
            "total": total,
            "fill": fill,
            "recover": recover,
            "matmul": matmul,
            "graph": graph,
            "graphs": graphs,
            # CUDA cannot be used in a child that was forked from a process which uses it.
            "fork": lambda: workers("fork", "cpu"),
            "spawn": lambda: workers("spawn", "cuda"),
        }
    )
