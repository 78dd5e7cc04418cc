// build:
/* A program that needs nothing but a C library. */
#include <stdio.h>

int main(void)
{
    puts("hello");
    return 3;
}
