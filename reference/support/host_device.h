// Marks index arithmetic that runs on the CPU and inside CUDA kernels alike.
#pragma once

#ifdef __CUDACC__
#define RINGSIDE_HD __host__ __device__
#define RINGSIDE_HD_INLINE __host__ __device__ __forceinline__  // however long
#else
#define RINGSIDE_HD
#define RINGSIDE_HD_INLINE
#endif
