//! The names that profiles use for device attributes. A card has 0 for all others.

use driver_sys::cuda::*;

macro_rules! attributes {
    ($($name:ident = $number:ident;)*) => {
        /// The attribute's name in a profile, if any profile has it.
        pub fn name(attribute: CUdevice_attribute) -> Option<&'static str> {
            match attribute {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

attributes! {
    max_threads_per_block = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    max_block_dim_x = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X;
    max_block_dim_y = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y;
    max_block_dim_z = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z;
    max_grid_dim_x = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X;
    max_grid_dim_y = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y;
    max_grid_dim_z = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z;
    max_shared_memory_per_block = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK;
    total_constant_memory = CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY;
    warp_size = CU_DEVICE_ATTRIBUTE_WARP_SIZE;
    max_pitch = CU_DEVICE_ATTRIBUTE_MAX_PITCH;
    max_registers_per_block = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK;
    clock_rate = CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
    texture_alignment = CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT;
    gpu_overlap = CU_DEVICE_ATTRIBUTE_GPU_OVERLAP;
    integrated = CU_DEVICE_ATTRIBUTE_INTEGRATED;
    can_map_host_memory = CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY;
    maximum_texture1d_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH;
    maximum_texture2d_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH;
    maximum_texture2d_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT;
    maximum_texture3d_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH;
    maximum_texture3d_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT;
    maximum_texture3d_depth = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH;
    maximum_texture2d_layered_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH;
    maximum_texture2d_layered_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT;
    maximum_texture2d_layered_layers = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS;
    surface_alignment = CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT;
    concurrent_kernels = CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS;
    ecc_enabled = CU_DEVICE_ATTRIBUTE_ECC_ENABLED;
    pci_device_id = CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID;
    memory_clock_rate = CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE;
    global_memory_bus_width = CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH;
    l2_cache_size = CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
    max_threads_per_multiprocessor = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
    async_engine_count = CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT;
    unified_addressing = CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING;
    maximum_texture1d_layered_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH;
    maximum_texture1d_layered_layers = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS;
    can_tex2d_gather = CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER;
    maximum_texture2d_gather_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH;
    maximum_texture2d_gather_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT;
    maximum_texture3d_width_alternate = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE;
    maximum_texture3d_height_alternate = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE;
    maximum_texture3d_depth_alternate = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE;
    texture_pitch_alignment = CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT;
    maximum_texturecubemap_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH;
    maximum_texturecubemap_layered_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH;
    maximum_texturecubemap_layered_layers = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS;
    maximum_surface1d_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH;
    maximum_surface2d_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH;
    maximum_surface2d_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT;
    maximum_surface3d_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH;
    maximum_surface3d_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT;
    maximum_surface3d_depth = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH;
    maximum_surface1d_layered_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH;
    maximum_surface1d_layered_layers = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS;
    maximum_surface2d_layered_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH;
    maximum_surface2d_layered_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT;
    maximum_surface2d_layered_layers = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS;
    maximum_surfacecubemap_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH;
    maximum_surfacecubemap_layered_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH;
    maximum_surfacecubemap_layered_layers = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS;
    maximum_texture1d_linear_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH;
    maximum_texture2d_linear_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH;
    maximum_texture2d_linear_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT;
    maximum_texture2d_linear_pitch = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH;
    maximum_texture2d_mipmapped_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH;
    maximum_texture2d_mipmapped_height = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT;
    maximum_texture1d_mipmapped_width = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH;
    stream_priorities_supported = CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED;
    global_l1_cache_supported = CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED;
    local_l1_cache_supported = CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED;
    max_shared_memory_per_multiprocessor = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
    max_registers_per_multiprocessor = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR;
    managed_memory = CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY;
    single_to_double_precision_perf_ratio = CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO;
    concurrent_managed_access = CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    compute_preemption_supported = CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED;
    can_use_host_pointer_for_registered_mem = CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
    cooperative_launch = CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH;
    max_shared_memory_per_block_optin = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    can_flush_remote_writes = CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES;
    host_register_supported = CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED;
    virtual_address_management_supported = CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED;
    handle_type_posix_file_descriptor_supported = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    max_blocks_per_multiprocessor = CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR;
    generic_compression_supported = CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED;
    max_persisting_l2_cache_size = CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE;
    max_access_policy_window_size = CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE;
    reserved_shared_memory_per_block = CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK;
    read_only_host_register_supported = CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
    memory_pools_supported = CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
    mempool_supported_handle_types = CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES;
    cluster_launch = CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH;
    mem_sync_domain_count = CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT;
    tensor_map_access_supported = CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED;
    numa_id = CU_DEVICE_ATTRIBUTE_NUMA_ID;
    multicast_supported = CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED;
    host_numa_id = CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
    host_numa_virtual_memory_management_supported = CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    host_virtual_memory_management_supported = CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
}
