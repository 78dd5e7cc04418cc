// build: -lcuda
/* cuGetProcAddress with all kinds of invalid arguments. */
#include "trace.h"

static void ask(const char *symbol, int version, uint64_t flags)
{
    void *function = (void *)UNTOUCHED;
    int status = -1;
    SAY("\"%s\" version %d flags %d", symbol ? symbol : "(NULL)", version, (int)flags);
    TRACE(cuGetProcAddress(symbol, &function, version, flags), "found=%d status=untouched",
          function != (void *)UNTOUCHED && function != NULL);
    function = (void *)UNTOUCHED;
    TRACE(cuGetProcAddress_v2(symbol, &function, version, flags, &status), "found=%d status=%d",
          function != (void *)UNTOUCHED && function != NULL, status);
    function = (void *)UNTOUCHED;
    TRACE(cuGetProcAddress_v2(symbol, &function, version, flags, NULL), "found=%d",
          function != (void *)UNTOUCHED && function != NULL);
    TRACE(cuGetProcAddress(symbol, NULL, version, flags));
    TRACE(cuGetProcAddress_v2(symbol, NULL, version, flags, &status), "status=%d", status);
}

int main(void)
{
    static const char *const symbols[] = {NULL, "", "cuMemAlloc", "cuMemAlloc_v2", "cuNoSuchThing",
                                          "cu", "memAlloc", "dlsym", "cuGetProcAddress_v2"};
    static const int versions[] = {0, -1, 1000, 12000, 99000};
    static const uint64_t flags[] = {0, 1, 2, 3, 4};
    for (size_t s = 0; s < sizeof symbols / sizeof *symbols; s++)
        for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
            for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
                ask(symbols[s], versions[v], flags[f]);
    return 0;
}
