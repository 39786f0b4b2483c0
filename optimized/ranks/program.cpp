#include "optimized/ranks/program.h"

#include <algorithm>
#include <set>

#include "optimized/links/lengths_word.h"
#include "optimized/links/mailbox.h"
#include "optimized/program/fill_length_tables.h"
#include "optimized/program/passes.h"
#include "optimized/ranks/own_rows.h"
#include "optimized/ranks/parts.h"
#include "optimized/tables/length_lists.h"

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

// And in a round of its own from every other process.
ExpectedWords words_of_round(const Links& links, int processes, int round, uint32_t token) {
  ExpectedWords expected;
  for (int process = 0; process < processes; ++process)
    if (process != links.mine())
      expected.push_back(
          {links.communicator()->arrived(process, round), mailbox::token(token, round)});
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

// What comes in a pass, by a call for the largest scores or by any other.
ExpectedWords words_of_pass(const RankParts& program, const PassParts& parts, const Links& links,
                            bool with_logits, uint32_t token) {
  ExpectedWords all = expected_words(parts, token, *links.communicator());
  const auto add_round = [&](int round) {
    const auto words = words_of_round(links, program.num_processes, round, token);
    all.insert(all.end(), words.begin(), words.end());
  };
  if (with_logits) add_round(mailbox::kLogits);
  if (program.any_lengths) add_round(mailbox::kLengths);
  return all;
}

void attach(const RankParts& program, PassParts& parts, const Links& links, uint32_t token) {
  const uint32_t other = token ^ kWithLogits;
  parts.expected.token = token, parts.expected_with_logits.token = other;
  if (links.communicator() == nullptr) return;
  for (const Act& act : parts.pass.acts())
    if (links.uses_words() && act.round >= mailbox::kOfPlan)
      throw Unsupported(concat("exchange=\"peer\" of a plan of more than ", mailbox::kOfPlan,
                               " exchanges a pass. Nearest supported: exchange=\"nccl\""));
  parts.expected = uploaded(words_of_pass(program, parts, links, false, token), token);
  parts.expected_with_logits = uploaded(words_of_pass(program, parts, links, true, other), other);
}

void require_any_lengths(const RankParts& parts) {
  require(parts.any_lengths,
          "a program of a plan, which knows its lengths. Make one of a capacity to set them");
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
RankProgram::RankProgram(const Capacity& capacity, const Hosting& hosting,
                         const ProgramOptions& options, KeepKv keep)
    : parts_(std::make_unique<RankParts>(capacity, hosting, options, keep)) {}
RankProgram::~RankProgram() = default;

void RankProgram::set_lengths(const DeviceLayout& q, const DeviceLayout& k,
                              cudaStream_t stream) const {
  require_made_on(current_device(), parts_->device, "program");
  require_any_lengths(*parts_);
  require_room(parts_->lengths, q, k);
  fill_length_tables(parts_->lengths, q, k, stream);
  const TableOf<OwnRows> own = parts_->rows_of_members;
  cut_own_rows(parts_->lengths, parts_->tables.at(own), own.size, stream);
  write_lengths_word(parts_->lengths, parts_->tables.at(parts_->lengths_word), stream);
}

bool RankProgram::lengths_fitted(cudaStream_t stream) const {
  require_made_on(current_device(), parts_->device, "program");
  require_any_lengths(*parts_);
  return take_status(parts_->lengths.status, stream);
}

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
  ringside::attach(*parts_, parts_->forward, links, 2 * kind);
  ringside::attach(*parts_, parts_->backward, links, 2 * kind + 1);
}

void RankProgram::forward(const std::vector<RankForwardCall>& ranks, const RankCallOptions& options,
                          Links& links, cudaStream_t stream) const {
  run_forward(*parts_, ranks, options, {stream, links.workspace(), &links});
}

void RankProgram::backward(const std::vector<RankBackwardCall>& ranks,
                           const RankCallOptions& options, Links& links,
                           cudaStream_t stream) const {
  run_backward(*parts_, ranks, options, {stream, links.workspace(), &links});
}

}  // namespace ringside
