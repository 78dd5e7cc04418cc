// build: -lcuda
/* cuMemGetInfo with NULL for one or both outputs: OptiX reads the total only. */
#include "trace.h"

int main(void)
{
    size_t free = UNTOUCHED, total = UNTOUCHED;
    unsigned old_free = (unsigned)UNTOUCHED, old_total = (unsigned)UNTOUCHED;
    use_device(0);
    TRACE(cuMemGetInfo_v2(NULL, &total), "total=%s", bytes(total));
    TRACE(cuMemGetInfo_v2(&free, NULL), "free=%s", bytes(free));
    TRACE(cuMemGetInfo_v2(NULL, NULL));
    TRACE(cuMemGetInfo(NULL, &old_total), "total=%s", bytes(old_total));
    TRACE(cuMemGetInfo(&old_free, NULL), "free=%s", bytes(old_free));
    TRACE(cuMemGetInfo(NULL, NULL));
    return 0;
}
