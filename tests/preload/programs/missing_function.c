// build: -shared -Wl,--allow-shlib-undefined
/* A library that needs a function that no library has. */
void in_no_library(void);
void calls_it(void);

void calls_it(void)
{
    in_no_library();
}
