// build:
/* Calls the plug-in with which it is linked. */
#include <stdio.h>

int start_plugin(void);

int main(void)
{
    printf("plug-in: %d\n", start_plugin());
    return 0;
}
