// build: -lcuda
/* Driver calls before main, in a constructor, where other libraries may not be initialised yet. */
#define FIND(symbol) symbol
#define main walk
#include "walk.h"
#undef main

__attribute__((constructor)) static void before_main(int argc, char **argv)
{
    walk(argc, argv);
}

int main(void)
{
    return 0;
}
