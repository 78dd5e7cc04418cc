// build: -shared -fPIC
/* Found only through the RUNPATH of the library that opens it. */
int sibling(void)
{
    return 7;
}
