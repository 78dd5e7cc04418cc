// build:
/* Prints whether the preload library is mapped. */
#include <stdio.h>
#include <string.h>

int main(void)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        return 1;
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "/libvgpu.so") != NULL;
    puts(found ? "preloaded" : "not preloaded");
    return 0;
}
