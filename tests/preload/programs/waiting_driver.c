// build: -shared -fPIC -Wl,-soname,libcuda.so.1
/* A driver in C whose synchronisation never ends: the stub's would be unwound through Rust. */
#include <unistd.h>

int cuInit(unsigned flags)
{
    return (int)flags;
}

int cuStreamSynchronize(void *stream)
{
    for (;;)
        pause();
    return stream != 0;
}
