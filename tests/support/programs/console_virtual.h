/* The console's commands for virtual memory, and for memory of other processes and other APIs.
 *
 * An address is a name, or a name and an offset: `r`, `r+4M`. Descriptors are passed as the process
 * that has them and their number there; console_descriptors.h has the way that works for every file. */
#pragma once
#include <linux/memfd.h>
#include <sys/syscall.h>
#include "console_descriptors.h"
#include "console_memory.h"

static CUmemGenericAllocationHandle physicals[SLOTS];
static size_t physical_sizes[SLOTS], reserved_sizes[SLOTS];
static handle externals[SLOTS];
static size_t external_sizes[SLOTS];

/* The index of an address's name. */
static unsigned base_of(const char *text)
{
    char name[8] = "";
    size_t length = strcspn(text, "+");
    memcpy(name, text, length < sizeof name ? length : sizeof name - 1);
    return index_of(name);
}

static CUdeviceptr address_of(const char *text)
{
    const char *plus = strchr(text, '+');
    return pointers[base_of(text)] + (plus ? size(plus + 1) : 0);
}

static void *as_handle(int descriptor) { return (void *)(uintptr_t)descriptor; }

static void show_bytes(const unsigned char *bytes, size_t count)
{
    char text[LINE];
    for (size_t i = 0; i < count; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    OUT("%s", text);
}

static void parse_bytes(unsigned char *bytes, size_t count, const char *text)
{
    for (size_t i = 0; i < count && text && text[2 * i]; i++)
        sscanf(text + 2 * i, "%2hhx", &bytes[i]);
}

static int other_apis(char **a)
{
    CUdeviceptr *address = a[1] ? &SLOT(pointers, a[1]) : NULL;
    if (IS("external")) { /* a new file, as the memory of another API */
        CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
            .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            /* glibc 2.17, for which the GPU kit is built, has no memfd_create. */
            .handle.fd = (int)syscall(SYS_memfd_create, "another API", MFD_CLOEXEC),
            .size = external_sizes[index_of(a[1])] = size(a[2])};
        if (ftruncate(description.handle.fd, (off_t)description.size))
            return -1;
        int result = CALL(cuImportExternalMemory, &SLOT(externals, a[1]), &description);
        if (result)
            close(description.handle.fd);
        return result;
    }
    if (IS("external_buffer")) { /* `external_buffer b e OFFSET BYTES`; without them all of it */
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC description = {
            .offset = a[3] ? size(a[3]) : 0,
            .size = a[3] && a[4] ? size(a[4]) : external_sizes[index_of(a[2])]};
        ANSWER(CALL(cuExternalMemoryGetMappedBuffer, address, SLOT(externals, a[2]), &description),
               "%s", pointer(*address));
    }
    if (IS("external_destroy"))
        return CALL(cuDestroyExternalMemory, SLOT(externals, a[1]));
    return graph_memory(a);
}

static int other_processes(char **a)
{
    CUdeviceptr *address = a[1] ? &SLOT(pointers, a[1]) : NULL;
    CUmemoryPool *pool = a[1] ? &SLOT(pools, a[1]) : NULL;
    int type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (IS("ipc_handle")) {
        CUipcMemHandle ipc = {{0}};
        int result = CALL(cuIpcGetMemHandle, &ipc, *address);
        show_bytes(ipc.reserved, sizeof ipc.reserved);
        return result;
    }
    if (IS("ipc_open")) {
        CUipcMemHandle ipc = {{0}};
        parse_bytes(ipc.reserved, sizeof ipc.reserved, a[2]);
        ANSWER(CALL(cuIpcOpenMemHandle_v2, address, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "%s",
               pointer(*address));
    }
    if (IS("ipc_close"))
        return CALL(cuIpcCloseMemHandle, *address);
    if (IS("export_pool_of")) { /* a new pool on device NUMBER, and its descriptor */
        CUmemPoolProps properties = pool_on(NUMBER(2, 0));
        int descriptor = -1;
        properties.handleTypes = type;
        int result = CALL(cuMemPoolCreate, pool, &properties);
        if (result == 0)
            result = CALL(cuMemPoolExportToShareableHandle, &descriptor, *pool, type, 0);
        ANSWER(result, "pid=%d fd=%d", getpid(), descriptor);
    }
    if (IS("import_pool")) {
        int descriptor = copy_of_descriptor(a[2], a[3]);
        int result = CALL(cuMemPoolImportFromShareableHandle, pool, as_handle(descriptor), type, 0);
        close(descriptor);
        ANSWER(result, "%s", POINTER(*pool));
    }
    if (IS("export_pointer")) {
        CUmemPoolPtrExportData data = {{0}};
        int result = CALL(cuMemPoolExportPointer, &data, *address);
        show_bytes(data.reserved, sizeof data.reserved);
        return result;
    }
    if (IS("import_pointer")) { /* `import_pointer a POOL HEX` */
        CUmemPoolPtrExportData data = {{0}};
        parse_bytes(data.reserved, sizeof data.reserved, a[3]);
        ANSWER(CALL(cuMemPoolImportPointer, address, SLOT(pools, a[2]), &data), "%s",
               pointer(*address));
    }
    return other_apis(a);
}

/* A device's number, `host`, `numa`: node 0 of the host, or `numa_current`: the thread's node. */
static CUmemLocation location_in(const char *text)
{
    static const char *const hosts[] = {"host", "numa", "numa_current"};
    for (int i = 0; text && i < 3; i++)
        if (strcmp(text, hosts[i]) == 0)
            return (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST + i, 0};
    return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, text ? atoi(text) : 0};
}

static int physical_memory(char **a)
{
    CUmemGenericAllocationHandle *physical = a[1] ? &SLOT(physicals, a[1]) : NULL;
    int type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (IS("create")) { /* `create h 4M`, `create h 4M 1 fd`, `create h 4M host`; see location_in */
        CUmemAllocationProp properties = {
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = a[3] && a[4] && strcmp(a[4], "fd") == 0 ? type : 0,
            .location = location_in(a[3])};
        physical_sizes[index_of(a[1])] = size(a[2]);
        return CALL(cuMemCreate, physical, size(a[2]), &properties, 0);
    }
    if (IS("release") && a[1] && (*a[1] < '0' || *a[1] > '9')) /* a number is a device */
        return CALL(cuMemRelease, *physical);
    if (IS("retain")) {
        void *at = (void *)(uintptr_t)address_of(a[2]);
        return CALL(cuMemRetainAllocationHandle, physical, at);
    }
    if (IS("same_handle")) /* whether two names have the same handle */
        return *physical != SLOT(physicals, a[2]);
    if (IS("properties")) {
        CUmemAllocationProp found = {0};
        ANSWER(CALL(cuMemGetAllocationPropertiesFromHandle, &found, *physical),
               "types=%d location=%d id=%d", found.requestedHandleTypes, found.location.type,
               found.location.id);
    }
    if (IS("granularity")) { /* `granularity 0 1`: of device 0, the recommended one */
        CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, NUMBER(1, 0)}};
        size_t granularity = UNTOUCHED;
        ANSWER(CALL(cuMemGetAllocationGranularity, &granularity, &properties, NUMBER(2, 0)), "%zu",
               granularity);
    }
    if (IS("export")) {
        int descriptor = -1;
        ANSWER(CALL(cuMemExportToShareableHandle, &descriptor, *physical, type, 0), "pid=%d fd=%d",
               getpid(), descriptor);
    }
    if (IS("import")) { /* `import h PID FD` */
        int descriptor = copy_of_descriptor(a[2], a[3]);
        /* The stub's open file is at the size of its memory. */
        off_t end = lseek(descriptor, 0, SEEK_CUR);
        int result = CALL(cuMemImportFromShareableHandle, physical, as_handle(descriptor), type);
        physical_sizes[index_of(a[1])] = end < 0 ? 0 : (size_t)end;
        close(descriptor);
        return result;
    }
    return descriptors(a);
}

/* Tiles of sparse arrays, and bindings to multicast objects, which have names of physical memory. */
static int bound_memory(char **a)
{
    CUmemGenericAllocationHandle *physical = a[1] ? &SLOT(physicals, a[1]) : NULL;
    if (IS("tile") || IS("untile")) { /* `tile ARRAY X h [STREAM]`, `untile ARRAY X - [STREAM]` */
        CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                               .resource.array = SLOT(arrays, a[1]),
                               .subresource.sparseLevel = {.offsetX = (unsigned)NUMBER(2, 0),
                                                           .extentWidth = 64,
                                                           .extentHeight = 64,
                                                           .extentDepth = 1},
                               .memOperationType = IS("tile") ? CU_MEM_OPERATION_TYPE_MAP
                                                              : CU_MEM_OPERATION_TYPE_UNMAP,
                               .deviceBitMask = 1};
        if (IS("tile"))
            info.memHandle.memHandle = SLOT(physicals, a[3]);
        return CALL(cuMemMapArrayAsync, &info, 1, NULL);
    }
    if (IS("multicast")) { /* `multicast c 64M`, on device 0 */
        CUmulticastObjectProp properties = {.numDevices = 1, .size = size(a[2])};
        int result = CALL(cuMulticastCreate, physical, &properties);
        return result ? result : CALL(cuMulticastAddDevice, *physical, 0);
    }
    if (IS("bind")) /* `bind c OFFSET h` */
        return CALL(cuMulticastBindMem, *physical, size(a[2]), SLOT(physicals, a[3]), 0,
                    physical_sizes[index_of(a[3])], 0);
    if (IS("bind_v2"))
        return CALL(cuMulticastBindMem_v2, *physical, 0, size(a[2]), SLOT(physicals, a[3]), 0,
                    physical_sizes[index_of(a[3])], 0);
    if (IS("bind_address")) /* `bind_address c OFFSET r 64M` */
        return CALL(cuMulticastBindAddr, *physical, size(a[2]), address_of(a[3]), size(a[4]), 0);
    if (IS("bind_address_v2"))
        return CALL(cuMulticastBindAddr_v2, *physical, 0, size(a[2]), address_of(a[3]), size(a[4]),
                    0);
    if (IS("unbind")) /* `unbind c OFFSET 64M` */
        return CALL(cuMulticastUnbind, *physical, 0, size(a[2]), size(a[3]));
    return physical_memory(a);
}

static int virtual_memory(char **a)
{
    CUdeviceptr *address = a[1] ? &SLOT(pointers, a[1]) : NULL;
    if (IS("reserve")) {
        reserved_sizes[index_of(a[1])] = size(a[2]);
        ANSWER(CALL(cuMemAddressReserve, address, size(a[2]), 0, 0, 0), "%s", pointer(*address));
    }
    if (IS("unreserve"))
        return CALL(cuMemAddressFree, *address, a[2] ? size(a[2]) : reserved_sizes[index_of(a[1])]);
    if (IS("map")) /* `map r+2M h`: all of h, or the bytes that follow */
        return CALL(cuMemMap, address_of(a[1]), a[3] ? size(a[3]) : physical_sizes[index_of(a[2])],
                    0, SLOT(physicals, a[2]), 0);
    if (IS("unmap"))
        return CALL(cuMemUnmap, address_of(a[1]), size(a[2]));
    /* `access r+2M 4M DEVICE FLAGS`; where nothing is reserved, the name is a pool's. */
    if (IS("access") && reserved_sizes[base_of(a[1])]) {
        CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, NUMBER(3, 0)},
                                  a[3] ? NUMBER(4, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                                       : CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        return CALL(cuMemSetAccess, address_of(a[1]), size(a[2]), &access, 1);
    }
    if (IS("write")) /* one byte: `write r+2M 7` */
        return CALL(cuMemsetD8_v2, address_of(a[1]), (unsigned char)NUMBER(2, 1), 1);
    if (IS("read")) {
        unsigned char byte = 0;
        int result = CALL(cuMemcpyDtoH_v2, &byte, address_of(a[1]), 1);
        ANSWER(result, "%d", byte);
    }
    return bound_memory(a);
}
