// build: -ldl
/* Loads the driver $LIBCUDA, and prints whether the kernel has given this process more rights than its user
 * has, and the memory of card 0. */
#include <dlfcn.h>
#include <sys/auxv.h>
#include "trace.h"

#define IN(library, name) ((__typeof__(name) *)dlsym(library, #name))

int main(void)
{
    size_t bytes = 0;
    void *driver = dlopen(getenv("LIBCUDA"), RTLD_NOW);
    SAY("privileged=%lu", getauxval(AT_SECURE));
    TRACE(IN(driver, cuInit)(0));
    TRACE(IN(driver, cuDeviceTotalMem_v2)(&bytes, 0), "total=%zu", bytes);
    return 0;
}
