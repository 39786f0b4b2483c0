#include "optimized/program/walk.h"

#include <cmath>

#include "optimized/links/mailbox.h"

namespace ringside {

void require_dense(const move::GlobalArray& x, const char* name) {
  const DeviceMatrix& m = x.matrix;
  require(m.rows == 0 || ((m.row_stride == int64_t{x.heads} * x.dim || m.rows == 1) &&
                          (m.head_stride == x.dim || x.heads == 1)),
          name, " has strides ", m.row_stride, " and ", m.head_stride, "; expected ",
          x.heads * x.dim, " and ", x.dim, ". Pass a contiguous array");
  require(reinterpret_cast<uintptr_t>(m.data) % 16 == 0, name,
          " does not begin at a multiple of 16 bytes. Copy it");
}

Walk::Walk(const ProgramParts& parts, const PassParts& pass, const RankCallOptions& options,
           const RunsOn& on)
    : parts_(parts),
      pass_(pass),
      options_(options),
      links_(on.links),
      workspace_(on.workspace),
      stream_(on.stream),
      messages_(on.links == nullptr ? on.stream : on.links->stream()) {
  require_made_on(current_device(), parts.device, "program");
  if (links_ == nullptr) return;
  require_made_on(links_->device(), parts.device, "program");
  fork_.emplace(), join_.emplace();
}

void Walk::require_kept(size_t member, const std::byte* kept) const {
  const int64_t bytes = pass_.pass.kept_bytes(static_cast<int>(member));
  require(bytes == 0 || (kept != nullptr && reinterpret_cast<uintptr_t>(kept) % 16 == 0),
          "kept keys of rank ", hosted()[member].rank, " begin at ", static_cast<const void*>(kept),
          "; expected ", bytes,
          " bytes from a multiple of 16 on. Pass memory of the device, as kept_bytes() says");
}

void Walk::begin() const {
  if (links_ != nullptr)
    links_->begin_call(expected().token, at(pass_.staging), pass_.staging_bytes, stream_);
  poison(at(0), pass_.end);
}

void Walk::poison(std::byte* begin, int64_t bytes) const {
  if (parts_.options.poison == Poison::on && bytes > 0)
    RINGSIDE_CUDA(cudaMemsetAsync(begin, 0xff, static_cast<size_t>(bytes), stream_));
}

void Walk::tell_all(int round, const void* mine, int64_t bytes, int64_t place) const {
  const auto rows_of = [&](int process) { return Rows{place + process * bytes, bytes, bytes, 1}; };
  on_links([&] {
    DeviceCommunicator* others = communicator();
    others->begin(round, messages_);
    auto* own = static_cast<std::byte*>(const_cast<void*>(mine));
    for (int process = 0; process < parts_.num_processes; ++process) {
      if (process == links_->mine()) continue;
      others->send(process, {own, bytes, bytes, 1}, rows_of(links_->mine()));
      others->receive(process, ringside::at(workspace_, rows_of(process)));
    }
    others->end();
  });
}

void Walk::tell_lengths(Pass pass) const {
  if (!parts_.any_lengths || communicator() == nullptr) return;
  const uint64_t* own = parts_.tables.at(parts_.lengths_word);
  tell_all(mailbox::kLengths, own, sizeof(*own), parts_.words_of_lengths(pass));
}

void Walk::agree_on_lengths(Pass pass, const std::vector<Emptied>& results) const {
  tell_lengths(pass);
  if (!parts_.any_lengths || communicator() == nullptr) return;
  const uint64_t* own = parts_.tables.at(parts_.lengths_word);
  int32_t* differ = parts_.tables.at(parts_.lengths_differ);
  const int64_t place = parts_.words_of_lengths(pass);
  compare_lengths(
      {reinterpret_cast<const uint64_t*>(at(place)), parts_.num_processes, links_->mine(), own},
      differ, parts_.lengths.status, stream_);
  empty_if(differ, results, stream_);
}

void Walk::end(const std::vector<Spoilable>& results) const {
  if (links_ == nullptr) return;
  links_->end_call(reinterpret_cast<const ExpectedWord*>(expected().words.data()), expected().count,
                   results, stream_);
}

void Walk::run() const {
  const auto& acts = pass_.pass.acts();
  on_links([&] {
    for (size_t act = 0; act < acts.size(); ++act)
      if (acts[act].round >= 0)
        exchange(act);
      else
        run(acts[act].turns[0]);
  });
}

void Walk::run_messages() const {
  const auto& acts = pass_.pass.acts();
  on_links([&] {
    for (size_t act = 0; act < acts.size(); ++act)
      if (acts[act].round >= 0) post(act);
  });
}

int Walk::arrays_of(int member, const Block& block) const {
  const Payload payload = hosted()[member].buffers[block.buffer].payload;
  return static_cast<int>(pass_.pass.sizes().of(payload).size());
}

DeviceRows Walk::rows(int member, const Block& block, int array) const {
  const ScheduledBuffer& buffer = hosted()[member].buffers[block.buffer];
  std::byte* base = workspace_;
  if (buffer.area == kCaller)
    base = caller(member, buffer.payload, array);
  else if (hosted()[member].areas[buffer.area].kept)
    base = kept(member);
  return ringside::at(base, pass_.pass.rows(member, block, array));
}

std::byte* Walk::pointer(int member, const Block& block, int array) const {
  return rows(member, block, array).data;
}

DeviceMatrix Walk::matrix(int member, int buffer, int array, int dim) const {
  const ScheduledBuffer& b = hosted()[member].buffers[buffer];
  return {pointer(member, buffer, array), int64_t{b.heads.size()} * dim, dim, b.rows};
}

std::byte* Walk::home(const move::GlobalArray& x, int64_t place) const {
  return parts_.home_in_workspace ? at(place) : static_cast<std::byte*>(x.matrix.data);
}
void Walk::bring_home(const move::RowMap& rows, const move::GlobalArray& x, int64_t place) const {
  if (parts_.home_in_workspace) move::shard(rows, x, at(place), parts_.shape.type, stream_);
}

void Walk::await(const Turn& turn) const {
  if (links_ == nullptr) return;
  const Operation& op = hosted()[turn.member].operations[turn.operation];
  for (const int before : op.after) pass_.events[turn.member][before].hold(stream_of(op));
}
void Walk::tell(const Turn& turn) const {
  if (links_ == nullptr) return;
  const Operation& op = hosted()[turn.member].operations[turn.operation];
  pass_.events[turn.member][turn.operation].record(stream_of(op));
}

void Walk::run(const Turn& turn) const {
  const Operation& op = hosted()[turn.member].operations[turn.operation];
  const OperationTables& tables = pass_.operations[turn.member][turn.operation];
  await(turn);
  const AddedAtEnd* at_end = added_at_end(turn.member);
  if (at_end != nullptr && at_end->has(turn.operation)) return tell(turn);
  const bool spared = op.to.buffer == home_sums(turn.member) && finals_ &&
                      pass_.final_rows[turn.member].sums_unused;
  if (op.kind == OperationKind::clear && !spared)
    for (const auto& [begin, end] : tables.cleared)
      clear(turn.member, {op.to.buffer, op.to.row + begin, end - begin, op.to.heads});
  const bool by_table = tables.blocks.size > 0;
  if (op.kind == OperationKind::copy && !by_table) copy(turn.member, op);
  if (op.kind == OperationKind::copy && by_table) copy_by_table(turn.member, op, tables);
  if (op.kind == OperationKind::combine) combine(turn.member, op, tables);
  if (op.kind == OperationKind::compute) compute(turn.member, op, tables);
  tell(turn);
}

void Walk::clear(int member, const Block& block) const {
  const bool results = hosted()[member].buffers[block.buffer].payload == Payload::results;
  for (int array = 0; array < arrays_of(member, block); ++array) {
    const DeviceRows all = rows(member, block, array);
    if (results && array == 1)
      move::fill(reinterpret_cast<float*>(all.data), block.cells(), -INFINITY, stream_);
    else if (all.bytes() > 0)
      RINGSIDE_CUDA(cudaMemsetAsync(all.data, 0, all.bytes(), stream_));
  }
}

void Walk::copy(int member, const Operation& op) const {
  for (int array = 0; array < arrays_of(member, op.from); ++array)
    copy_rows(rows(member, op.from, array), rows(member, op.to, array), stream_);
}

void Walk::copy_by_table(int member, const Operation& op, const OperationTables& tables) const {
  const auto& sizes = pass_.pass.sizes().of(hosted()[member].buffers[op.to.buffer].payload);
  for (int array = 0; array < arrays_of(member, op.to); ++array) {
    const DeviceRows to = rows(member, op.to, array);
    if (parts_.is_stacked) poison(to.data, static_cast<int64_t>(to.bytes()));
    move::copy(parts_.blocks(tables), pointer(member, op.from.buffer, array),
               pointer(member, op.to.buffer, array), sizes[array], stream_);
  }
}

void Walk::combine(int member, const Operation& op, const OperationTables& tables) const {
  const move::Blocks blocks = parts_.blocks(tables);
  const auto& buffers = hosted()[member].buffers;
  const int from = op.from.buffer, to = op.to.buffer;
  const int dims[] = {
      buffers[to].payload == Payload::results ? parts_.shape.head_dim_v : parts_.shape.head_dim_qk,
      parts_.shape.head_dim_v};
  if (buffers[to].payload == Payload::results)
    return move::merge(blocks, {floats(member, from, 0), floats(member, from, 1)},
                       {floats(member, to, 0), floats(member, to, 1)}, dims[0], stream_);
  for (int array = 0; array < arrays_of(member, op.to); ++array)
    move::add(blocks, floats(member, from, array), floats(member, to, array), dims[array], stream_);
}

void Walk::exchange(size_t index) const {
  const Act& act = pass_.pass.acts()[index];
  const RoundOfProcess& round = pass_.pass.round(static_cast<int>(index));
  for (const Turn& turn : act.turns) await(turn);
  for (const LocalParcel& parcel : round.copies)
    for (int array = 0; array < arrays_of(parcel.from, parcel.sent); ++array)
      copy_rows(rows(parcel.from, parcel.sent, array), rows(parcel.to, parcel.received, array),
                messages_);
  post(index);
  for (const Turn& turn : act.turns) tell(turn);
}

// The messages of a round to and from other processes.
void Walk::post(size_t index) const {
  const Act& act = pass_.pass.acts()[index];
  const RoundOfProcess& round = pass_.pass.round(static_cast<int>(index));
  if (round.sends.empty() && round.receives.empty()) return;
  const int step = hosted()[act.turns[0].member].operations[act.turns[0].operation].step;
  write_word(links_->words().on_device(mailbox::kStep), static_cast<uint32_t>(step) + 1, messages_);
  DeviceCommunicator& others = *communicator();
  others.begin(act.round, messages_);
  for (const Parcel& p : round.sends)
    others.send(p.process, rows(p.member, p.block, p.array), p.there);
  for (const Parcel& p : round.receives)
    others.receive(p.process, rows(p.member, p.block, p.array));
  others.end();
}

}  // namespace ringside
