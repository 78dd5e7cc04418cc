// build: -lcuda
/* Device memory as llama.cpp's pool takes it: one range of 32 GiB, of which the pool maps more at its end
 * when it needs more, and which it unmaps in one call.
 *
 *   growing_pool ROUNDS SEED
 *
 * Blocks of random sizes are allocated and freed last in, first out. Handles are released when they are
 * mapped. The program also has memory on a NUMA node of the host, which is no memory of the card. Each
 * stage prints its name and the mapped bytes of the card, and waits for a line. */
#include "cuda.h"
#include "trace.h"

enum { BLOCKS = 4096 };
static const size_t RANGE = 32 * GiB, ON_HOST = 64 * MiB;

static CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static CUmemAllocationProp on_host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
static const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static CUdeviceptr pool;
static size_t granularity, mapped, used, blocks[BLOCKS];
static int live;

static size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

static int allocate(size_t size)
{
    size = round_up(size, 128);
    if (used + size > mapped) {
        size_t more = round_up(used + size - mapped, granularity);
        CUmemGenericAllocationHandle handle;
        int result = cuMemCreate(&handle, more, &on_device, 0);
        if (result)
            return result;
        MUST(cuMemMap(pool + mapped, more, 0, handle, 0));
        MUST(cuMemRelease(handle));
        MUST(cuMemSetAccess(pool + mapped, more, &access, 1));
        mapped += more;
    }
    MUST(cuMemsetD8_v2(pool + used, (unsigned char)live, 1));
    blocks[live++] = size;
    used += size;
    return 0;
}

static void free_last(void)
{
    unsigned char byte;
    used -= blocks[--live];
    MUST(cuMemcpyDtoH_v2(&byte, pool + used, 1));
    must(byte != (unsigned char)live, "the block's byte");
}

static void stage(const char *name)
{
    SAY("%s %zu", name, mapped);
    while (getchar() != '\n')
        ;
}

static void take_host_memory(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    MUST(cuMemGetAllocationGranularity(&granularity, &on_host, 0));
    MUST(cuMemCreate(&handle, ON_HOST, &on_host, 0));
    MUST(cuMemAddressReserve(&range, ON_HOST, granularity, 0, 0));
    MUST(cuMemMap(range, ON_HOST, 0, handle, 0));
    MUST(cuMemSetAccess(range, ON_HOST, &access, 1));
    MUST(cuMemsetD8_v2(range, 1, ON_HOST));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    unsigned seed = (unsigned)atoi(argv[2]);
    use_device(0);
    take_host_memory();
    stage("host");
    MUST(cuMemGetAllocationGranularity(&granularity, &on_device, 1));
    for (int round = 0; round < atoi(argv[1]); round++) {
        MUST(cuMemAddressReserve(&pool, RANGE, 0, 0, 0));
        int result = 0;
        while (result == 0 && live < BLOCKS)
            if (live && rand_r(&seed) % 4 == 0)
                free_last();
            else
                result = allocate(1 + rand_r(&seed) % (32 * MiB));
        while (result == CUDA_ERROR_OUT_OF_MEMORY && allocate(mapped - used + 1) == 0)
            ;
        must(result != CUDA_ERROR_OUT_OF_MEMORY, "to be refused at the limit");
        stage("full");
        while (live)
            free_last();
        if (mapped) /* otherwise other processes were faster */
            MUST(cuMemUnmap(pool, mapped));
        MUST(cuMemAddressFree(pool, RANGE));
        mapped = 0;
        stage("empty");
    }
    return 0;
}
