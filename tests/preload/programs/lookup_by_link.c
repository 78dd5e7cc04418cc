// build: -lcuda
/* Linked against the driver: the dynamic linker binds the calls. */
#define FIND(symbol) symbol
#include "walk.h"
