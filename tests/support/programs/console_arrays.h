/* The console's commands for arrays. Extents that an array does not have are 0; elements have a
 * number of channels (1) and of bytes for each channel (1):
 *
 *   array a 1024 1024 4 2        an array of one or two dimensions; `array_v1`: by CUDA 3.1
 *   array3d a 64 64 6 5 1 4      of any shape; the fourth number has the flags; `array3d_v1`
 *   mipmap m 1024 1024 0 11      of so many levels; flags, channels and bytes may follow
 *   level a m 3                  level 3 of m, as array a
 *   array_size a                 what the driver says about an array
 *   array_check a                all bytes, written, read again and compared
 *   array_free a, mipmap_free m */
#pragma once
#include "console.h"

static CUarray arrays[SLOTS];
static CUmipmappedArray mipmaps[SLOTS];

static int green_contexts(char **a);

/* Unsigned integers of so many bytes. */
static unsigned format_of(int bytes)
{
    return bytes == 4   ? CU_AD_FORMAT_UNSIGNED_INT32
           : bytes == 2 ? CU_AD_FORMAT_UNSIGNED_INT16
                        : CU_AD_FORMAT_UNSIGNED_INT8;
}

/* The shape in a command, from the word at `first` on; a number that is left out is 0. */
static CUDA_ARRAY3D_DESCRIPTOR shape_in(char **a, int first, int flags, int channels)
{
    size_t extents[3] = {0};
    for (int i = 0; i < 3 && a[first + i]; i++)
        extents[i] = size(a[first + i]);
    return (CUDA_ARRAY3D_DESCRIPTOR){
        .width = extents[0],
        .height = extents[1],
        .depth = extents[2],
        .format = format_of(a[channels] ? NUMBER(channels + 1, 1) : 1),
        .channels = (unsigned)NUMBER(channels, 1),
        .flags = flags ? (unsigned)NUMBER(flags, 0) : 0,
    };
}

static int create_array(char **a, CUarray *array)
{
    int is_plane = IS("array") || IS("array_v1");
    CUDA_ARRAY3D_DESCRIPTOR shape = is_plane ? shape_in(a, 2, 0, 4) : shape_in(a, 2, 5, 6);
    CUDA_ARRAY_DESCRIPTOR plane = {shape.width, shape.height, shape.format, shape.channels};
    if (IS("array"))
        return CALL(cuArrayCreate_v2, array, &plane);
    if (IS("array3d"))
        return CALL(cuArray3DCreate_v2, array, &shape);
    /* Only the linker and dlsym find the forms of CUDA 3.1. */
    if (is_plane) {
        CUDA_ARRAY_DESCRIPTOR_v1 old = {(unsigned)plane.width, (unsigned)plane.height, plane.format,
                                        plane.channels};
        return CALL(cuArrayCreate, array, &old);
    }
    CUDA_ARRAY3D_DESCRIPTOR_v1 old = {(unsigned)shape.width, (unsigned)shape.height,
                                      (unsigned)shape.depth, shape.format, shape.channels,
                                      shape.flags};
    return CALL(cuArray3DCreate, array, &old);
}

/* Bytes of a row; formats of console arrays only. */
static size_t row_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    size_t bytes = shape->format == CU_AD_FORMAT_UNSIGNED_INT32   ? 4
                   : shape->format == CU_AD_FORMAT_UNSIGNED_INT16 ? 2
                                                                  : 1;
    return shape->width * shape->channels * bytes;
}

static int check_array(CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    int result = CALL(cuArray3DGetDescriptor_v2, &shape, array);
    if (result)
        return result;
    size_t row = row_bytes(&shape), rows = shape.height ? shape.height : 1;
    size_t slices = shape.depth ? shape.depth : 1, total = row * rows * slices;
    unsigned char *out = malloc(total), *back = calloc(total, 1);
    for (size_t i = 0; i < total; i++)
        out[i] = (unsigned char)(i * 7 + i / 251);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = out,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array,
                          .WidthInBytes = row, .Height = rows, .Depth = slices};
    result = CALL(cuMemcpy3D_v2, &copy);
    copy = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array,
                           .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back,
                           .WidthInBytes = row, .Height = rows, .Depth = slices};
    result = result ? result : CALL(cuMemcpy3D_v2, &copy);
    OUT("same=%d bytes=%zu", memcmp(out, back, total) == 0, total);
    free(out);
    free(back);
    return result;
}

static int array_memory(char **a)
{
    CUarray *array = a[1] ? &SLOT(arrays, a[1]) : NULL;
    CUmipmappedArray *mipmap = a[1] ? &SLOT(mipmaps, a[1]) : NULL;
    if (IS("array") || IS("array_v1") || IS("array3d") || IS("array3d_v1"))
        ANSWER(create_array(a, array), "%s", POINTER(*array));
    if (IS("array_free"))
        return CALL(cuArrayDestroy, *array);
    if (IS("array_size")) {
        CUDA_ARRAY3D_DESCRIPTOR shape;
        memset(&shape, 0x5a, sizeof shape);
        ANSWER(CALL(cuArray3DGetDescriptor_v2, &shape, *array),
               "width=%zu height=%zu depth=%zu format=%u channels=%u flags=%u", shape.width,
               shape.height, shape.depth, shape.format, shape.channels, shape.flags);
    }
    if (IS("array_check"))
        return check_array(*array);
    if (IS("mipmap")) {
        CUDA_ARRAY3D_DESCRIPTOR shape = shape_in(a, 2, 6, 7);
        ANSWER(CALL(cuMipmappedArrayCreate, mipmap, &shape, (unsigned)NUMBER(5, 1)), "%s",
               POINTER(*mipmap));
    }
    if (IS("mipmap_free"))
        return CALL(cuMipmappedArrayDestroy, *mipmap);
    if (IS("level"))
        ANSWER(CALL(cuMipmappedArrayGetLevel, array, SLOT(mipmaps, a[2]), (unsigned)NUMBER(3, 0)),
               "%s", POINTER(*array));
    return green_contexts(a);
}
