// build: -shared -fPIC
/* A plugin whose constructor calls the function at the address in $CONSTRUCTOR. */
#include <stdint.h>
#include <stdlib.h>

__attribute__((constructor)) static void construct(void)
{
    const char *address = getenv("CONSTRUCTOR");
    if (address)
        ((void (*)(void))(uintptr_t)strtoull(address, NULL, 16))();
}
