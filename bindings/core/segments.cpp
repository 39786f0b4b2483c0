// The plain structs of a plan as Python sees them; repr of each is its constructor call.
#include <pybind11/operators.h>
#include <pybind11/typing.h>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/module.h"
#include "bindings/core/plan_views.h"
#include "reference/plan/cost.h"
#include "reference/support/errors.h"
#include "reference/verify/verify.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

std::string repr(const Segment& s) {
  return concat("Segment(seq=", s.seq, ", pos=", s.pos, ", len=", s.len, ", stride=", s.stride,
                ", row=", s.row, ")");
}

std::string repr(Range heads) { return concat("(", heads.begin, ", ", heads.end, ")"); }

const char* name_of(Operand operand) { return operand == Operand::q ? "q" : "kv"; }

std::string repr(const Message& m) {
  return concat("Message(peer=", m.peer, ", operand=\"", name_of(m.operand), "\", row=", m.row,
                ", rows=", m.rows, ", heads=", repr(m.heads), ")");
}

std::pair<int, int> as_pair(Range heads) { return {heads.begin, heads.end}; }

}  // namespace

Operand operand_from(const std::string& name) {
  if (name == "q") return Operand::q;
  if (name == "kv") return Operand::kv;
  throw InvalidArgument(concat("operand=\"", name, "\" is unknown; expected one of \"q\", \"kv\""));
}

const std::vector<int>& ResidentKeys::owners(const Buffer& buffer) {
  const auto [known, is_new] = known_.try_emplace(buffer.shard);
  if (is_new) known->second = owners_of(buffer.shard);
  return known->second;
}

std::vector<int> ResidentKeys::owners_of(int shard) {
  if (plan_->shards[shard].empty()) return {};
  for (int rank = 0; rank < plan_->cp_size(); ++rank)  // a ring passes them on as they are
    if (plan_->home_kv[rank].shard == shard) return {rank};
  if (!homes_) homes_.emplace(*plan_);
  std::vector<int> owners;
  for (const auto& [rank, rows] : homes_->count(plan_->shards[shard])) owners.push_back(rank);
  return owners;
}

namespace {

std::optional<int> owner_of(const StepView& s) {
  const auto& owners = s.keys->owners(s.step().kv);
  return owners.size() == 1 ? std::optional(owners[0]) : std::nullopt;
}

py::array_t<int32_t> positions_of(const Segment& s) {
  const int64_t last = s.pos + (int64_t{s.len} - 1) * s.stride;
  require(s.len <= 0 || std::in_range<int32_t>(last), repr(s), " reaches position ", last,
          "; expected one that fits int32. Pass a smaller len or stride");
  std::vector<int32_t> positions;
  for (int i = 0; i < s.len; ++i) positions.push_back(s.position(i));
  return to_array(positions);
}

void bind_segment(py::module_& m) {
  py::class_<Segment>(m, "Segment", R"doc(
A run of tokens of one sequence in consecutive rows: row row+i holds position pos + i*stride.

Args:
    seq: which sequence.
    pos: position of the first token in its sequence.
    len: number of tokens (rows).
    stride: distance between neighbouring positions.
    row: first row in the buffer; -1 (default) is "right below the segment before", filled in by
        whoever takes a list of segments.

>>> import ringside as rs
>>> rs.Segment(seq=0, pos=1, len=3, stride=2).positions.tolist()
[1, 3, 5]
)doc")
      .def(py::init(strictly<"seq", "pos", "len", "stride", "row">(
               [](int seq, int pos, int len, int stride, int row) {
                 return Segment{seq, pos, stride, row, len};
               })),
           "seq"_a, "pos"_a, "len"_a, "stride"_a = 1, "row"_a = -1)
      .def_readonly("seq", &Segment::seq)
      .def_readonly("pos", &Segment::pos)
      .def_readonly("len", &Segment::len)
      .def_readonly("stride", &Segment::stride)
      .def_readonly("row", &Segment::row)
      .def_property_readonly("positions", &positions_of,
                             "[len] int32: the position of each row in its sequence.")
      .def(py::self == py::self)
      .def("__reduce__",
           [](const py::object& self) {
             const auto& s = self.cast<const Segment&>();
             return constructor_call(self, s.seq, s.pos, s.len, s.stride, s.row);
           })
      .def("__repr__", [](const Segment& s) { return repr(s); });
}

void bind_tile(py::module_& m) {
  py::class_<Tile>(m, "Tile", R"doc(
Queries of one segment against keys of another, both of one sequence; rows index the resident buffers.
)doc")
      .def_readonly("q", &Tile::q)
      .def_readonly("k", &Tile::k)
      .def(py::self == py::self)
      .def("__repr__",
           [](const Tile& t) { return "Tile(q=" + repr(t.q) + ", k=" + repr(t.k) + ")"; });
}

void bind_message(py::module_& m) {
  py::class_<Message>(m, "Message", R"doc(
A block of rows x heads that travels between a rank and a peer (which may be the rank itself).

row counts in the buffer before the exchange in a send, in the one after it in a receive; -1 in a
receive: each row lands where the buffer has its position, as gathered chunks do whose sequence goes
on in another rank's. operand is "q" or "kv"; K and V travel together.
)doc")
      .def_readonly("peer", &Message::peer)
      .def_property_readonly("operand", [](const Message& x) { return name_of(x.operand); })
      .def_readonly("row", &Message::row)
      .def_readonly("rows", &Message::rows)
      .def_property_readonly("heads", [](const Message& x) { return as_pair(x.heads); })
      .def(py::self == py::self)
      .def("__repr__", [](const Message& x) { return repr(x); });
}

using StepClass = py::class_<StepView>;

void bind_resident(StepClass& step) {
  step.def_property_readonly(
          "q", [](const StepView& s) { return s.plan->shard(s.step().q); },
          "The segments of the resident query buffer, in row order.")
      .def_property_readonly(
          "kv", [](const StepView& s) { return s.plan->shard(s.step().kv); },
          "The segments of the resident K/V buffer, in row order.")
      .def_property_readonly(
          "heads", [](const StepView& s) { return as_pair(s.step().q.heads); },
          "(begin, end) of the query heads computed here.")
      .def_property_readonly(
          "kv_heads", [](const StepView& s) { return as_pair(s.step().kv.heads); },
          "(begin, end) of the kv heads resident here.")
      .def_property_readonly(
          "owner", &owner_of,
          "Whose keys and values are resident; None of several ranks, and where there are none.")
      .def_property_readonly(
          "owners",
          [](const StepView& s) -> py::typing::Tuple<int, py::ellipsis> {
            return py::tuple(py::cast(s.keys->owners(s.step().kv)));
          },
          "The ranks that own the resident keys and values, rising.");
}

void bind_step(py::module_& m) {
  StepClass step(m, "Step", R"doc(
One step of one rank: exchange buffers, then compute tiles on what is resident.

>>> import ringside as rs
>>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=4)
>>> [step.owner for step in plan.steps(1)]
[1, 0, 3, 2]
)doc");
  step.def_property_readonly(
          "exchange", [](const StepView& s) { return name(s.step().before.kind); },
          "\"none\", \"ring_shift\", \"all_gather\" or \"all_to_all\".")
      .def_property_readonly("sends", [](const StepView& s) { return s.step().before.sends; })
      .def_property_readonly("receives",
                             [](const StepView& s) { return s.step().before.receives; });
  bind_resident(step);
  step.def_property_readonly("tiles", [](const StepView& s) { return s.plan->tiles(s.step()); })
      .def("__repr__", [](const StepView& s) {
        return concat("<Step exchange=\"", name(s.step().before.kind),
                      "\", q rows=", s.plan->rows(s.step().q),
                      ", kv rows=", s.plan->rows(s.step().kv), ", heads=", repr(s.step().q.heads),
                      ", tiles=", s.plan->tiles(s.step()).size(), ">");
      });
}

void bind_proof(py::module_& m) {
  py::class_<PlanProof>(m, "PlanProof", "What verify() checked.")
      .def_readonly("rows", &PlanProof::rows, "Rows of q and of k, each owned once.")
      .def_readonly("messages", &PlanProof::messages, "Messages, each sent and received.")
      .def_readonly("tiles", &PlanProof::tiles, "Tiles, over all ranks and steps.")
      .def_readonly("pairs", &PlanProof::pairs, "Visible (query, key) pairs of one head.")
      .def_readonly("operations", &PlanProof::operations,
                    "Operations of the schedules of all ranks, both passes.")
      .def("__repr__", [](const PlanProof& p) {
        return concat("PlanProof(rows=", p.rows, ", messages=", p.messages, ", tiles=", p.tiles,
                      ", pairs=", p.pairs, ", operations=", p.operations, ")");
      });
}

}  // namespace

void bind_segments(py::module_& m) {
  bind_segment(m);
  bind_tile(m);
  bind_message(m);
  bind_step(m);
  bind_proof(m);
}

}  // namespace ringside::bindings
