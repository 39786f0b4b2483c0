# sh build_driver.sh WORKTREE OUTPUT: the backward kernel alone, with float64 checks (`one`, `check`) and times (`time`, `quick`).
cd "$1"; here=$(dirname "$(realpath "$0")")
F="-std=c++20 -O3 -DNDEBUG -gencode=arch=compute_90a,code=sm_90a -I."
nvcc $F -Xptxas -v -c optimized/attention/hopper/backward.cu -o /tmp/hb_kernel.o 2>&1 | c++filt | grep -E "C75|error|spill" | sort | uniq -c
nvcc $F -c "$here/driver.cu" -o /tmp/hb_driver.o
g++ -std=c++20 -O2 -I. -I/usr/local/cuda/include -c optimized/attention/hopper/tensor_map.cpp -o /tmp/hb_map.o
g++ -std=c++20 -O2 -I. -I/usr/local/cuda/include -c optimized/device/processors.cpp -o /tmp/hb_processors.o
nvcc -cudart static -gencode=arch=compute_90a,code=sm_90a /tmp/hb_kernel.o /tmp/hb_driver.o /tmp/hb_map.o /tmp/hb_processors.o -o "$2"
