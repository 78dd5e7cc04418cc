// build: -shared -fPIC
/* The definition at the end of a chain of wrappers. */
int subject(void)
{
    return 1;
}
