// Marks index arithmetic that runs on the CPU and inside CUDA kernels alike.
#pragma once

#ifdef __CUDACC__
#define RINGSIDE_HD __host__ __device__
#else
#define RINGSIDE_HD
#endif
