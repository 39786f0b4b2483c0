#include "optimized/ranks/program.h"

#include <algorithm>
#include <set>

#include "optimized/links/mailbox.h"
#include "optimized/ranks/parts.h"

namespace ringside {
namespace {

constexpr uint32_t kWithLogits = 0x5DEECE66u;  // tells such calls from others

using ExpectedWords = std::vector<ExpectedWord>;

// What should have come by the end of a pass: in every round, of every process that sends.
ExpectedWords expected_words(const PassParts& parts, uint32_t token,
                             const DeviceCommunicator& from) {
  ExpectedWords expected;
  const auto& acts = parts.pass.acts();
  for (size_t act = 0; act < acts.size(); ++act) {
    std::set<int> senders;
    for (const Parcel& parcel : parts.pass.round(static_cast<int>(act)).receives)
      senders.insert(parcel.process);
    for (const int process : senders)
      if (uint32_t* word = from.arrived(process, acts[act].round))
        expected.push_back({word, mailbox::token(token, acts[act].round)});
  }
  return expected;
}

// And of every other process its largest scores.
ExpectedWords words_of_logits(const Links& links, int processes, uint32_t token) {
  ExpectedWords expected;
  for (int process = 0; process < processes; ++process)
    if (process != links.mine())
      expected.push_back({links.communicator()->arrived(process, mailbox::kLogits),
                          mailbox::token(token, mailbox::kLogits)});
  return expected;
}

Expected uploaded(const ExpectedWords& words, uint32_t token) {
  const auto bytes = words.size() * sizeof(ExpectedWord);
  Expected expected{DeviceMemory(static_cast<int64_t>(bytes)), static_cast<int>(words.size()),
                    token};
  const PrivateStream stream;
  RINGSIDE_CUDA(
      cudaMemcpyAsync(expected.words.data(), words.data(), bytes, cudaMemcpyHostToDevice, stream));
  stream.wait();
  return expected;
}

void attach(PassParts& parts, const Links& links, int processes, uint32_t token) {
  parts.expected.token = token, parts.expected_with_logits.token = token ^ kWithLogits;
  if (links.communicator() == nullptr) return;
  for (const Act& act : parts.pass.acts())
    if (links.uses_words() && act.round >= mailbox::kLogits)
      throw Unsupported(concat("exchange=\"peer\" of a plan of more than ", mailbox::kLogits,
                               " exchanges a pass. Nearest supported: exchange=\"nccl\""));
  parts.expected = uploaded(expected_words(parts, token, *links.communicator()), token);
  const uint32_t other = token ^ kWithLogits;
  ExpectedWords all = expected_words(parts, other, *links.communicator());
  for (const ExpectedWord& word : words_of_logits(links, processes, other)) all.push_back(word);
  parts.expected_with_logits = uploaded(all, other);
}

int64_t bytes_sent(const ProcessPass& pass) {
  int64_t bytes = 0;
  for (size_t act = 0; act < pass.acts().size(); ++act)
    for (const Parcel& parcel : pass.round(static_cast<int>(act)).sends)
      bytes += parcel.here.bytes();
  return bytes;
}

}  // namespace

RankProgram::RankProgram(const Plan& plan, const Hosting& hosting, const ProgramOptions& options,
                         KeepKv keep)
    : parts_(std::make_unique<RankParts>(plan, hosting, options, keep)) {}
RankProgram::~RankProgram() = default;

const char* RankProgram::family() const { return parts_->family.name; }
int64_t RankProgram::workspace_bytes() const {
  return std::max(parts_->forward.end, parts_->backward.end);
}

std::vector<int64_t> RankProgram::kept_bytes() const {
  std::vector<int64_t> bytes;
  for (size_t member = 0; member < parts_->members.size(); ++member)
    bytes.push_back(parts_->forward.pass.kept_bytes(static_cast<int>(member)));
  return bytes;
}

int64_t RankProgram::bytes_sent() const {
  return ringside::bytes_sent(parts_->forward.pass) + ringside::bytes_sent(parts_->backward.pass);
}

void RankProgram::attach(const Links& links, uint32_t kind) {
  const int processes = parts_->num_processes();
  ringside::attach(parts_->forward, links, processes, 2 * kind);
  ringside::attach(parts_->backward, links, processes, 2 * kind + 1);
}

}  // namespace ringside
