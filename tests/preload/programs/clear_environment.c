// build: -lcuda
/* Clears its environment before its first call, but for the stub's own, and prints the memory. */
#include "trace.h"

int main(void)
{
    const char *server = getenv("STUB_GPU_SOCKET");
    size_t total = 0;
    clearenv();
    setenv("STUB_GPU_SOCKET", server, 1);
    MUST(cuInit(0));
    MUST(cuDeviceTotalMem_v2(&total, 0));
    SAY("total=%zu", total);
    return 0;
}
