// Uses the CUDA half of an installed Ringside the way a stranger would, as far as that needs no
// GPU.
#include <ringside/optimized/program/program.h>
#include <ringside/optimized/tables/build_work_list.h>
#include <ringside/reference/support/errors.h>

#include <cstdio>
#include <string>

int main() {
  ringside::AttentionShape shape;
  shape.head_dim_qk = shape.head_dim_v = 128;
  shape.type = ringside::ElementType::bfloat16;
  const ringside::KernelFamily* family = ringside::find_family(shape, {}, false);
  if (family == nullptr || family->name != std::string("mma")) {
    std::printf("bfloat16 runs on %s, but should run on mma\n", family ? family->name : "nothing");
    return 1;
  }
  try {
    const ringside::CudaProgram program(ringside::Plan{}, {.head_dim_qk = 257, .head_dim_v = 1});
  } catch (const ringside::Unsupported& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  std::printf("head dimension 257 should be refused\n");
  return 1;
}
