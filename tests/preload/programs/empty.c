// build: -shared -nostdlib -Wl,--no-as-needed
/* A library without anything in it: what loading any library costs. One relocation, so that the
 * dynamic linker protects relocated data, as it does for every library that is not empty. */
extern const void *const relocated;
const void *const relocated = &relocated;
