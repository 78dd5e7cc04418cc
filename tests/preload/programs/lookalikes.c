// build: -shared -fPIC
/* A library that is not the driver, with some of the driver's names. */
int curl_easy_init(void) { return 1; }
int custom_fn(void) { return 2; }
int cuInit(unsigned flags) { return (int)flags + 3; }
int cuMemAlloc_v2(void) { return 4; }
int nvmlDeviceGetMemoryInfo(void) { return 5; }
int cuNotOfTheDriver(void) { return 6; }
