#include "optimized/program/stack_parts.h"

#include "optimized/device/processors.h"
#include "optimized/device/properties.h"
#include "optimized/program/room_for_lengths.h"
#include "optimized/tables/sums/first_keys.h"
#include "optimized/tables/unseen_rows.h"

namespace ringside {
namespace {

constexpr int kGapRows = 8;

bool in_order(const HostRowMap& map) {
  for (size_t row = 0; row < map.home_of_global.size(); ++row)
    if (map.home_of_global[row] != static_cast<int>(row)) return false;
  return true;
}

}  // namespace

void require_rows_of(int rows, std::initializer_list<NamedArray> arrays) {
  for (const auto& [array, name] : arrays)
    require(array->matrix.rows == rows, name, " has ", array->matrix.rows,
            " rows; the plan expects ", rows, ". Pass the whole array, padding included");
}

void StackParts::require_rows(const ForwardCall& call) const {
  require_rows_of(rows_q(), {{&call.q, "q"}, {&call.out, "out"}, {&call.lse, "lse"}});
  require_rows_of(rows_k(), {{&call.k, "k"}, {&call.v, "v"}});
}

void StackParts::require_rows(const BackwardCall& call) const {
  require_rows_of(rows_q(), {{&call.q, "q"}, {&call.out, "out"}, {&call.lse, "lse"}});
  require_rows_of(rows_q(), {{&call.dout, "dout"}, {&call.dq, "dq"}});
  require_rows_of(rows_k(), {{&call.k, "k"}, {&call.v, "v"}, {&call.dk, "dk"}, {&call.dv, "dv"}});
}

StackParts::StackParts(Lengths known, const Plan& plan, const ProgramOptions& o)
    : ProgramParts(known, plan.problem, o) {
  is_stacked = true;
}

int StackParts::gap() const { return options.poison == Poison::on ? kGapRows : 0; }

bool StackParts::can_be_in_place(const Stacks& stacks) const {
  return family.final_results && (!options.sinks || family.final_sinks(shape)) &&
         stacks.plan().cp_size() == 1 && stacks.of(Operand::q).size() == 1 &&
         stacks.of(Operand::kv).size() == 1 && stacks.plan().num_steps() == 1 && !home_in_workspace;
}

template <typename TablesOf>
void StackParts::make_passes(const Stacks& stacks, TablesOf tables_of) {
  home_q = stacks.home(Operand::q), home_k = stacks.home(Operand::kv);
  home_in_workspace = !in_place;
  // Moves of results from rank to rank know rows only.
  if (family.tiled_results && !in_place && stacks.of(Operand::q).size() == 1 &&
      home_q.matrices.size() == 1)
    layout = AccumulatorLayout::tiles;
  keys_in_one_item = true;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    PassParts& parts = pass == Pass::forward ? forward : backward;
    StackSchedule made = stack_schedule(stacks, pass, layout);
    auto& operations = parts.operations.emplace_back();
    for (size_t i = 0; i < made.operations.size(); ++i) {
      const Operation& op = made.schedule.operations[i];
      operations.push_back(tables_of(made.schedule, op, made.operations[i]));
      operations.back().starts = made.operations[i].starts && operations.back().can_start();
      if (pass == Pass::backward && op.kind == OperationKind::compute)
        keys_in_one_item = keys_in_one_item && operations.back().keys_in_one_item,
        carries_dq = carries_dq || operations.back().carries_dq,
        takes_turns = takes_turns || operations.back().keys_in_turn.items.size > 0,
        turns_are_quicker = turns_are_quicker || operations.back().turns_are_quicker,
        first_keys_store = first_keys_store || operations.back().first_keys_ahead;
      head_parts = std::max(head_parts, operations.back().head_parts);
    }
    tell_clears(made.schedule, operations);
    parts.pass = ProcessPass(std::move(made.schedule), sizes(pass));
    parts.final_rows.emplace_back();
    place(parts);
  }
}

void StackParts::place(PassParts& parts) {
  Arena arena;
  MemberPlaces& places = parts.places.emplace_back();
  const bool is_backward = &parts == &backward;
  if (in_place && is_backward) {
    const int64_t f32 = sizeof(float);
    places.lse = arena.take(home_q.cells * f32), places.delta = arena.take(home_q.cells * f32);
    if (!keys_in_one_item || carries_dq)
      dq_in_place = arena.take(home_q.cells * shape.head_dim_qk * f32);
    if (first_keys_store) first_in_place = arena.take(bytes_of_first_words());
    if (takes_turns) turns_in_place = arena.take(home_q.cells * int64_t{sizeof(unsigned)});
    if (head_parts > 1) {
      dk_in_place = arena.take(home_k.cells * shape.head_dim_qk * f32);
      dv_in_place = arena.take(home_k.cells * shape.head_dim_v * f32);
    }
  } else if (!in_place) {
    static_cast<void>(arena.take(parts.pass.bytes()));
    const Schedule& schedule = parts.pass.hosted()[0];
    const auto place = [&](int buffer, int array) {
      const ScheduledBuffer& b = schedule.buffers[buffer];
      return parts.pass.rows(0, {buffer, 0, b.rows, b.heads}, array).offset;
    };
    places.q = place(schedule.home_queries, 0);
    places.k = place(schedule.home_keys, 0), places.v = place(schedule.home_keys, 1);
    if (is_backward) {
      places.dout = place(schedule.home_queries, 1);
      places.lse = place(schedule.home_queries, 2), places.delta = place(schedule.home_queries, 3);
    }
  }
  parts.of_family = arena.take(most_bytes_of_family(parts));
  parts.end = arena.bytes();
}

int64_t StackParts::bytes_of_first_words() const {
  const int sequences = any_lengths ? lengths.max_batch : problem.layout_k.batch();
  return int64_t{sequences} * problem.num_kv_heads * head_parts * sizeof(unsigned);
}

bool StackParts::put_first_keys_ahead(HostWorkList& keys) const {
  const int heads = heads_of_documents(keys.most_rows_met, problem.num_kv_heads * keys.head_parts,
                                       keys.in_part, true);
  return family.backward_first_stores != nullptr &&
         ringside::put_first_keys_ahead(keys, problem.mask, heads, processors_of_device());
}

RowTables StackParts::add_rows(const HostRowMap& map) {
  return {tables.add(map.global_of_home), tables.add(map.home_of_global)};
}

StackParts::StackParts(const Plan& plan, const ProgramOptions& o)
    : StackParts(Lengths::of_plan, plan, o) {
  const Stacks stacks(plan, gap());
  const HostRowMap of_q = home_rows(plan, Operand::q, stacks.home(Operand::q));
  const HostRowMap of_kv = home_rows(plan, Operand::kv, stacks.home(Operand::kv));
  every_row_is_seen = every_row_sees_itself(problem.layout_q, problem.layout_k);
  in_place = can_be_in_place(stacks) && in_order(of_q) && in_order(of_kv);
  members.push_back({add_rows(of_q), add_rows(of_kv), {}});
  cu_seqlens_q = tables.add(problem.layout_q.cu_seqlens());
  cu_seqlens_k = tables.add(problem.layout_k.cu_seqlens());
  cu_seqlens_q_padded = tables.add(problem.layout_q.cu_seqlens_padded());
  cu_seqlens_k_padded = tables.add(problem.layout_k.cu_seqlens_padded());
  make_passes(stacks, [&](const Schedule& schedule, const Operation& op,
                          const StackedOperation& stacked) {
    if (op.kind != OperationKind::compute) {
      OperationTables made;
      made.blocks = tables.add(stacked.blocks);
      return made;
    }
    std::vector<RankTiles> tiles;
    for (const auto& [rank, q_row, k_row] : stacked.ranks)
      tiles.push_back({&plan.tiles(plan.steps_of_rank[rank][op.step]), q_row, k_row});
    if (in_place && schedule.pass == Pass::backward)
      if (const HostWorkList whole = whole_keys(tiles); !whole.items.empty())
        return add_items(schedule.pass, tiles, whole);
    HostWorkList items = items_of(schedule.pass, tiles, in_place);
    const bool ahead = in_place && schedule.pass == Pass::backward && put_first_keys_ahead(items);
    OperationTables made = add_items(schedule.pass, tiles, items);
    made.first_keys_ahead = ahead;
    return made;
  });
  tables.upload();
}

// Where lengths come later: room for what fill_length_tables writes.
class StackOfCapacity {
 public:
  StackOfCapacity(StackParts& parts, const Capacity& capacity, const Stacks& stacks)
      : p_(parts),
        plan_(stacks.plan()),
        room_(parts.lengths, parts.tables, capacity, plan_),
        q_(add_side(Operand::q, stacks.home(Operand::q))),
        k_(add_side(Operand::kv, stacks.home(Operand::kv))) {
    p_.members.push_back({q_.rows, k_.rows, {}});
    p_.cu_seqlens_q = q_.cu_seqlens, p_.cu_seqlens_q_padded = q_.cu_seqlens_padded;
    p_.cu_seqlens_k = k_.cu_seqlens, p_.cu_seqlens_k_padded = k_.cu_seqlens_padded;
  }

  OperationTables tables_of(const Schedule& schedule, const Operation& op,
                            const StackedOperation& stacked) {
    OperationTables made;
    if (op.kind != OperationKind::compute) {
      made.blocks = p_.tables.add(stacked.blocks);
      const Payload payload = schedule.buffers[op.to.buffer].payload;
      const bool is_kv = payload == Payload::keys || payload == Payload::key_gradients;
      if (stacked.is_gathered) made.map = is_kv ? k_.gathered : q_.gathered;
      return made;
    }
    std::vector<int> q, k;
    for (const auto& [rank, q_row, k_row] : stacked.ranks) {
      const Step& step = plan_.steps_of_rank[rank][op.step];
      q.push_back(room_.add_buffer(Operand::q, step.q, q_row));
      k.push_back(room_.add_buffer(Operand::kv, step.kv, k_row));
    }
    return room_.add_items(schedule.pass, p_, q, k, p_.in_place);
  }

  void finish() {
    const TableOf<Segment> partners = room_.allocate();
    set_partners(p_.forward, partners), set_partners(p_.backward, partners);
    p_.tables.upload();
    room_.point();
  }

 private:
  RoomForLengths::Side add_side(Operand operand, const RankStack& home) {
    std::vector<int32_t> row_of_rank;
    for (const RankStack::Place& place : home.of_rank) row_of_rank.push_back(place.row);
    return room_.add_side(operand, home.matrices[0].rows, row_of_rank);
  }

  StackParts& p_;
  const Plan& plan_;
  RoomForLengths room_;
  RoomForLengths::Side q_, k_;
};

StackParts::StackParts(const Capacity& capacity, const Plan& stand_in, const ProgramOptions& o)
    : StackParts(Lengths::any, stand_in, o) {
  problem.mask = capacity.mask;
  max_seqlen = capacity.max_seqlen;
  const Stacks stacks(stand_in, gap(), Lengths::any);
  in_place = can_be_in_place(stacks);  // whichever the partition
  StackOfCapacity made(*this, capacity, stacks);
  make_passes(stacks,
              [&](const Schedule& schedule, const Operation& op, const StackedOperation& stacked) {
                return made.tables_of(schedule, op, stacked);
              });
  made.finish();
}

}  // namespace ringside
