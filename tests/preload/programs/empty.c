// build: -shared -nostdlib -Wl,--no-as-needed
/* A nearly empty library, which measures the cost of loading any library. It has one relocation, so that
 * the dynamic linker protects relocated data, as for every other library. */
extern const void *const relocated;
const void *const relocated = &relocated;
