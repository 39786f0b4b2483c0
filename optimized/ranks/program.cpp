#include "optimized/ranks/program.h"

#include <algorithm>
#include <set>

#include "optimized/links/mailbox.h"
#include "optimized/ranks/parts.h"

namespace ringside {
namespace {

// What should have come by the end of a pass: in every round, of every process that sends.
std::vector<ExpectedWord> expected_words(const PassParts& parts, const DeviceCommunicator& from) {
  std::vector<ExpectedWord> expected;
  const auto& acts = parts.pass.acts();
  for (size_t act = 0; act < acts.size(); ++act) {
    std::set<int> senders;
    for (const Parcel& parcel : parts.pass.round(static_cast<int>(act)).receives)
      senders.insert(parcel.process);
    for (const int process : senders)
      if (uint32_t* word = from.arrived(process, acts[act].round))
        expected.push_back({word, mailbox::token(parts.token, acts[act].round)});
  }
  return expected;
}

void attach(PassParts& parts, const Links& links) {
  if (links.communicator() == nullptr) return;
  for (const Act& act : parts.pass.acts())
    if (links.uses_words() && act.round >= mailbox::kRounds)
      throw Unsupported(concat("exchange=\"peer\" of a plan of more than ", mailbox::kRounds,
                               " exchanges a pass. Nearest supported: exchange=\"nccl\""));
  const auto expected = expected_words(parts, *links.communicator());
  const auto bytes = expected.size() * sizeof(ExpectedWord);
  parts.num_expected = static_cast<int>(expected.size());
  parts.expected = DeviceMemory(static_cast<int64_t>(bytes));
  const PrivateStream stream;
  RINGSIDE_CUDA(cudaMemcpyAsync(parts.expected.data(), expected.data(), bytes,
                                cudaMemcpyHostToDevice, stream));
  stream.wait();
}

}  // namespace

RankProgram::RankProgram(const Plan& plan, const Hosting& hosting, const ProgramOptions& options)
    : parts_(std::make_unique<RankParts>(plan, hosting, options)) {}
RankProgram::~RankProgram() = default;

const char* RankProgram::family() const { return parts_->family.name; }
int64_t RankProgram::workspace_bytes() const {
  return std::max(parts_->forward.end, parts_->backward.end);
}

void RankProgram::attach(const Links& links, uint32_t kind) {
  parts_->forward.token = 2 * kind, parts_->backward.token = 2 * kind + 1;
  ringside::attach(parts_->forward, links);
  ringside::attach(parts_->backward, links);
}

}  // namespace ringside
