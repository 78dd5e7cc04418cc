// build: -shared -fPIC -Wl,-soname,libcuda.so.1
/* The stub library of the CUDA toolkit: it has the driver's SONAME, and its functions do nothing. */
#define STUB_LIBRARY(name)                \
    int name(void)                        \
    {                                     \
        return 34; /* CUDA_ERROR_STUB_LIBRARY */ \
    }
STUB_LIBRARY(cuInit)
STUB_LIBRARY(cuDriverGetVersion)
STUB_LIBRARY(cuGetErrorString)
STUB_LIBRARY(cuDeviceGetCount)
