// Parts of a program whose lengths come later: schedules of a stand-in plan, and room for what
// fill_length_tables and cut_own_rows write.
#include "optimized/program/room_for_lengths.h"
#include "optimized/ranks/parts.h"
#include "optimized/tables/schedules/operation_blocks.h"

namespace ringside {

class PartsOfCapacity {
 public:
  PartsOfCapacity(RankParts& parts, const Capacity& capacity, const Plan& stand_in)
      : p_(parts),
        plan_(stand_in),
        room_(parts.lengths, parts.tables, capacity, stand_in),
        gathered_(stand_in) {
    p_.problem.mask = capacity.mask;
    p_.lengths_word = p_.tables.reserve<uint64_t>(1);
    p_.lengths_differ = p_.tables.reserve<int32_t>(1);
    q_ = add_side(Operand::q), k_ = add_side(Operand::kv);
    while (p_.members.size() < p_.hosting.hosted().size()) {
      const RowTables q = reserve_rows(p_.lengths.q), kv = reserve_rows(p_.lengths.k);
      const RowTables seeing{p_.tables.reserve<int32_t>(p_.lengths.q.home.rows), q.home_of_global};
      p_.members.push_back({q, kv, seeing});
    }
  }

  void add(PassParts& parts) {
    for (const Schedule& schedule : parts.pass.hosted()) {
      auto& of_member = parts.operations.emplace_back();
      for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i)
        of_member.push_back(tables_of(schedule, i));
      p_.tell_clears(schedule, of_member);
      parts.final_rows.emplace_back();  // nobody knows which
    }
  }

  void finish() {
    const TableOf<Segment> partners = room_.allocate();
    set_partners(p_.forward, partners), set_partners(p_.backward, partners);
    std::vector<OwnRows> own;
    for (size_t i = 0; i < p_.members.size(); ++i) {
      const MemberRows& member = p_.members[i];
      const int rank = p_.hosting.hosted()[i];
      own.push_back(own_rows(Operand::q, rank, member.q));
      own.back().seeing = p_.tables.at(member.seeing.global_of_home);
      own.push_back(own_rows(Operand::kv, rank, member.kv));
    }
    p_.rows_of_members = p_.tables.add(own);
    p_.tables.upload();
    room_.point();
  }

 private:
  // Homes of all ranks, one below the other: each rank has its own, the maps are of all.
  RoomForLengths::Side add_side(Operand operand) {
    const int rows = p_.lengths.side(operand).home.rows, ranks = plan_.cp_size();
    std::vector<int32_t> row_of_rank;
    for (int rank = 0; rank < ranks; ++rank) row_of_rank.push_back(rank * rows);
    return room_.add_side(operand, ranks * rows, row_of_rank);
  }

  RowTables reserve_rows(const LengthTables::Side& side) {
    return {p_.tables.reserve<int32_t>(side.home.rows), p_.tables.reserve<int32_t>(side.home.rows)};
  }

  OwnRows own_rows(Operand side, int rank, const RowTables& rows) const {
    return {side, rank, p_.tables.at(rows.global_of_home), p_.tables.at(rows.home_of_global)};
  }

  OperationTables tables_of(const Schedule& schedule, int operation) {
    const Operation& op = schedule.operations[operation];
    OperationTables made;
    if (!op.runs.empty()) {
      made.blocks = p_.tables.add(gathered_.of(schedule, op));
      made.map = GatheredBlocks::side(schedule, op) == Operand::q ? q_.gathered : k_.gathered;
    } else if (op.kind == OperationKind::combine) {
      made.blocks = p_.tables.add(operation_blocks(schedule, op));
    }
    if (op.kind != OperationKind::compute) return made;
    const Step& step = plan_.steps_of_rank[schedule.rank][op.step];
    const std::vector<int> q{room_.add_buffer(Operand::q, step.q, 0)};
    const std::vector<int> k{room_.add_buffer(Operand::kv, step.kv, 0)};
    made = room_.add_items(schedule.pass, p_, q, k, false);
    made.starts = finds_nothing(schedule, operation);
    return made;
  }

  RankParts& p_;
  const Plan& plan_;
  RoomForLengths room_;
  GatheredBlocks gathered_;
  RoomForLengths::Side q_, k_;
};

RankParts::RankParts(const Capacity& capacity, const Plan& stand_in, const Hosting& hosting_,
                     const ProgramOptions& o, KeepKv keep_)
    : RankParts(Lengths::any, stand_in, hosting_, o, keep_) {
  PartsOfCapacity made(*this, capacity, stand_in);
  made.add(forward), made.add(backward);
  made.finish();
}

}  // namespace ringside
