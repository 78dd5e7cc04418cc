// build: -shared -fPIC -Wl,-soname,libcuda.so.1
/* A driver whose cuInit prints the variable that it finds, by both functions. */
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned flags)
{
    printf("%s %s\n", getenv("CUDA_VISIBLE_DEVICES"), secure_getenv("CUDA_VISIBLE_DEVICES"));
    fflush(stdout);
    return (int)flags;
}
