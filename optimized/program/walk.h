// One pass of a program, act by act: what forward and backward share.
#pragma once

#include <optional>
#include <vector>

#include "optimized/links/lengths_word.h"
#include "optimized/links/links.h"
#include "optimized/program/passes.h"

namespace ringside {

class Walk {
 public:
  Walk(const ProgramParts& parts, const PassParts& pass, const RankCallOptions& options,
       const RunsOn& on);
  virtual ~Walk() = default;

  // From where the home rows are in place to where all sums are.
  void run() const;
  // The messages alone, in their order.
  void run_messages() const;

 protected:
  virtual std::byte* caller(int member, Payload payload, int array) const = 0;  // home rows
  virtual std::byte* kept(int member) const = 0;
  virtual void compute(int member, const Operation& op, const OperationTables& tables) const = 0;

  void begin() const;
  // A word from every process to all others, in a round of its own behind those of the plan: `mine`
  // is of some bytes, those of others lie in the workspace from `place` on, by process.
  void tell_all(int round, const void* mine, int64_t bytes, int64_t place) const;
  // The word of the lengths that this process has read, where only the device knows them.
  void tell_lengths(Pass pass) const;
  // Where a process has other lengths, results become those of an empty batch, in all of them.
  void agree_on_lengths(Pass pass, const std::vector<Emptied>& results) const;
  void end(const std::vector<Spoilable>& results) const;
  // enqueue() on the links' stream, between what the caller's has so far and what it gets next.
  // Without links there is one stream.
  template <typename Enqueue>
  void on_links(Enqueue enqueue) const {
    if (links_ == nullptr) return enqueue();
    fork_->record(stream_);
    fork_->hold(messages_);
    enqueue();
    join_->record(messages_);
    join_->hold(stream_);
  }
  DeviceCommunicator* communicator() const {  // null where there is one process
    return links_ == nullptr ? nullptr : links_->communicator();
  }

  const std::vector<Schedule>& hosted() const { return pass_.pass.hosted(); }
  // The first cell of a block.
  std::byte* pointer(int member, const Block& block, int array) const;
  std::byte* pointer(int member, int buffer, int array) const {
    return pointer(member, whole(member, buffer), array);
  }
  float* floats(int member, int buffer, int array) const {
    return reinterpret_cast<float*>(pointer(member, buffer, array));
  }
  DeviceMatrix matrix(int member, int buffer, int array, int dim) const;
  std::byte* at(int64_t offset) const { return workspace_ + offset; }
  AttentionShape shape_of(int member, const Operation& op) const {
    return parts_.shape_of(hosted()[member], op);
  }

  // Those that final items may spare.
  int home_sums(int member) const { return hosted()[member].home_item_sums(); }
  // Whether final items leave their results in the caller's arrays in this call; if so, whether
  // all rows are theirs.
  bool has_final(int member) const { return finals_ && pass_.final_rows[member].any; }
  bool all_final(int member) const { return finals_ && pass_.final_rows[member].all; }
  // Where an operation's final items leave them.
  DeviceMatrix final_place(int member, int sums, const move::GlobalArray& results) const {
    return has_final(member) && sums == home_sums(member) ? results.matrix : DeviceMatrix{};
  }
  // What finish() adds, or null.
  const AddedAtEnd* added_at_end(int member) const {
    const auto& all = pass_.added_at_end;
    return all.empty() || all_final(member) ? nullptr : &all[member];
  }
  move::RowMap rows_through_sums(int member, const RowTables& rows) const {
    return parts_.row_map(has_final(member) ? pass_.final_rows[member].others : rows);
  }

  // Tiles of both passes read what is kept where it lies.
  void require_kept(size_t member, const std::byte* kept) const;

  // The caller's array where kernels read it as it is, else a copy of it at `place`.
  std::byte* home(const move::GlobalArray& x, int64_t place) const;
  void bring_home(const move::RowMap& rows, const move::GlobalArray& x, int64_t place) const;

  const ProgramParts& parts_;
  const PassParts& pass_;
  const RankCallOptions& options_;
  Links* const links_;
  std::byte* const workspace_;
  const cudaStream_t stream_, messages_;
  bool finals_ = false;  // whether the call allows of final results where sums are not needed

 private:
  Block whole(int member, int buffer) const {
    const ScheduledBuffer& b = hosted()[member].buffers[buffer];
    return {buffer, 0, b.rows, b.heads};
  }
  int arrays_of(int member, const Block& block) const;
  void poison(std::byte* begin, int64_t bytes) const;
  DeviceRows rows(int member, const Block& block, int array) const;
  cudaStream_t stream_of(const Operation& op) const {
    return op.stream == Stream::compute ? stream_ : messages_;
  }
  void await(const Turn& turn) const;
  void tell(const Turn& turn) const;
  void run(const Turn& turn) const;
  void clear(int member, const Block& block) const;
  void copy(int member, const Operation& op) const;
  void copy_by_table(int member, const Operation& op, const OperationTables& tables) const;
  void combine(int member, const Operation& op, const OperationTables& tables) const;
  void exchange(size_t act) const;
  void post(size_t act) const;
  const Expected& expected() const {
    return options_.max_logit == nullptr ? pass_.expected : pass_.expected_with_logits;
  }

  std::optional<Event> fork_, join_;
};

// What is dense, as rows and heads of home buffers are.
void require_dense(const move::GlobalArray& x, const char* name);

inline Spoilable spoilable(const move::GlobalArray& x) {
  return {x.matrix.data, x.matrix.rows * x.heads * x.dim * move::bytes_of(x.type)};
}

inline Emptied emptied(const move::GlobalArray& x, Emptied::Value value = Emptied::Value::zero) {
  const Spoilable memory = spoilable(x);
  return {memory.data, memory.bytes, value};
}

}  // namespace ringside
