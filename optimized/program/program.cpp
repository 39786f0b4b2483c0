#include "optimized/program/program.h"

#include "optimized/program/choose_family.h"
#include "optimized/program/fill_length_tables.h"
#include "optimized/program/passes.h"
#include "optimized/program/stack_parts.h"
#include "optimized/tables/length_lists.h"

namespace ringside {
namespace {

RunsOn runs_on(void* workspace, int64_t bytes, cudaStream_t stream) {
  require(workspace != nullptr || bytes == 0, "workspace is null; expected ", bytes, " bytes");
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  require(address % Arena::kAlignment == 0, "workspace at ", address, "; expected a multiple of ",
          Arena::kAlignment, " bytes. Begin it where cudaMalloc does");
  return {stream, static_cast<std::byte*>(workspace)};
}

}  // namespace

CudaProgram::CudaProgram(const Plan& plan, const ProgramOptions& options)
    : parts_(std::make_unique<StackParts>(plan, require_head_dims(options))) {}
CudaProgram::CudaProgram(const Capacity& capacity, const ProgramOptions& options)
    : parts_(std::make_unique<StackParts>(capacity, require_head_dims(options))) {}
CudaProgram::~CudaProgram() = default;

int CudaProgram::device() const { return parts_->device; }
const char* CudaProgram::family() const { return parts_->family.name; }
void CudaProgram::set_lengths(const DeviceLayout& q, const DeviceLayout& k,
                              cudaStream_t stream) const {
  parts_->require_current();
  require_room(parts_->lengths, q, k);
  fill_length_tables(parts_->lengths, q, k, stream);
}

bool CudaProgram::lengths_fitted(cudaStream_t stream) const {
  parts_->require_current();
  return take_status(parts_->lengths.status, stream);
}

bool CudaProgram::in_place() const { return parts_->in_place; }
int64_t CudaProgram::forward_bytes() const { return parts_->forward.end; }
int64_t CudaProgram::backward_bytes() const { return parts_->backward.end; }

void CudaProgram::forward(const ForwardCall& call, cudaStream_t stream) const {
  parts_->require_current();
  parts_->require_rows(call);
  const RunsOn on = runs_on(call.workspace, forward_bytes(), stream);
  if (in_place()) return parts_->forward_in_place(call, on);
  run_forward(*parts_, {{call.q, call.k, call.v, call.out, call.lse}},
              {call.sinks, call.options, call.max_logit}, on);
}

void CudaProgram::backward(const BackwardCall& call, cudaStream_t stream) const {
  parts_->require_current();
  parts_->require_rows(call);
  const RunsOn on = runs_on(call.workspace, backward_bytes(), stream);
  if (in_place()) return parts_->backward_in_place(call, on);
  run_backward(*parts_,
               {{call.dout, call.q, call.k, call.v, call.out, call.lse, call.dq, call.dk, call.dv,
                 call.dsink}},
               {call.sinks, call.options, nullptr, call.deterministic}, on);
}

}  // namespace ringside
