// build: -lcuda
/* Driver calls before main: the walk runs in a constructor, where other libraries' own
 * initialisation may not have happened yet. */
#define FIND(symbol) symbol
#define main walk
#include "road.h"
#undef main

__attribute__((constructor)) static void before_main(int argc, char **argv)
{
    walk(argc, argv);
}

int main(void)
{
    return 0;
}
