// Running the ranks of a plan that this process hosts, beside those of other processes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/options.h"
#include "bindings/core/plan_views.h"
#include "reference/schedule/run/run_schedule.h"
#include "reference/sockets/socket_ranks.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

std::unique_ptr<SocketRanks> make_ranks(const std::vector<int>& hosted,
                                        const std::vector<std::tuple<int, int, int>>& links,
                                        double timeout_s) {
  std::vector<SocketRanks::Link> all;
  for (const auto& [rank, peer, fd] : links) all.push_back({rank, peer, fd});
  return std::make_unique<SocketRanks>(
      hosted, all, std::chrono::milliseconds(static_cast<int64_t>(std::ceil(timeout_s * 1000))));
}

py::list waiting(const SocketRanks& ranks) {
  py::list all;
  for (const auto& [rank, step, peers] : ranks.waiting())
    all.append(py::make_tuple(rank, step, py::tuple(py::cast(peers))));
  return all;
}

py::object lost(const SocketRanks& ranks) {
  const auto error = ranks.lost();
  if (!error) return py::none();
  return py::make_tuple(py::tuple(py::cast(error->ranks)), error->kind == PeerError::Kind::silent);
}

enum class Shape { tensor, lse };  // [rows, heads, dim], [heads, rows]

struct Home {  // of one operand of a rank
  int rank, rows;
  const char* side;
};

DoubleArray home_array(const py::handle& x, const std::string& name, const Home& home,
                       Shape shape) {
  const py::array array = as_array(x, name);
  const bool is_lse = shape == Shape::lse;
  require(array.ndim() == (is_lse ? 2 : 3), name, " has shape ", shape_of(array), "; expected ",
          is_lse ? "[heads, rows]" : "[rows, heads, dim]", " of rank ", home.rank);
  const py::ssize_t rows = array.shape(is_lse ? 1 : 0);
  require(rows == home.rows, name, " has ", rows, " rows; rank ", home.rank, " owns ", home.rows,
          " of the plan's rows of ", home.side, ". Pass plan.shard(x, ", home.rank, ", side=\"",
          home.side, "\")");
  return floating(array, name.c_str());
}

struct RankArrays {
  DoubleArray q, k, v;
  std::optional<DoubleArray> dout, out, lse;  // of a backward pass
};

struct Given {  // lists of what Python passed, one array a hosted rank
  std::vector<py::object> q, k, v, dout, out, lse;
};

// What the hosted ranks do in one call: checked arrays and options.
class RankCall {
 public:
  RankCall(std::shared_ptr<const Plan> plan, std::vector<int> hosted, const Given& given,
           const OptionsArgument& options, bool keep_kv)
      : plan_(std::move(plan)),
        hosted_(std::move(hosted)),
        keep_(keep_kv ? KeepKv::yes : KeepKv::no) {
    for (size_t i = 0; i < hosted_.size(); ++i) add(given, i);
    noted_.resize(hosted_.size());
    options_ = options.resolve(plan_->problem.num_heads, dim_qk());
  }

  int dim_qk() const { return static_cast<int>(arrays_.at(0).q.shape(2)); }
  int dim_v() const { return static_cast<int>(arrays_.at(0).v.shape(2)); }

  py::tuple attention(SocketRanks& ranks) {
    std::vector<RankOutput> outputs(hosted_.size());
    run(ranks, [&](size_t i, Communicator& communicator) {
      const Schedule schedule = make_schedule(*plan_, hosted_[i], Pass::forward, keep_);
      outputs[i] = attention_of_rank(*plan_, schedule, inputs(i), communicator);
      note(i, schedule, outputs[i].moments);
    });
    py::list out, lse, max_logit, kept;
    for (RankOutput& x : outputs) {
      lse.append(heads_first(x.lse));
      out.append(to_array(std::move(x.out)));
      max_logit.append(to_array(std::move(x.max_logit), {plan_->problem.num_heads}));
      const auto numbers = static_cast<py::ssize_t>(x.kept.size());
      kept.append(to_array(std::move(x.kept), {numbers}));
    }
    return py::make_tuple(out, lse, max_logit, kept);
  }

  // `kept`: of each hosted rank what attention() kept, where this call keeps keys.
  py::tuple attention_backward(SocketRanks& ranks, const std::vector<DoubleArray>& kept) {
    std::vector<RankGradients> gradients(hosted_.size());
    std::vector<RankOutput> saved;
    for (size_t i = 0; i < hosted_.size(); ++i) saved.push_back(saved_of(i));
    if (keep_ == KeepKv::yes) take_kept(kept, saved);
    run(ranks, [&](size_t i, Communicator& communicator) {
      const Schedule schedule = make_schedule(*plan_, hosted_[i], Pass::backward, keep_);
      gradients[i] = attention_backward_of_rank(*plan_, schedule, inputs(i), view(*arrays_[i].dout),
                                                saved[i], communicator);
      note(i, schedule, gradients[i].moments);
    });
    py::list dq, dk, dv, dsink;
    for (RankGradients& g : gradients) {
      const auto sinks = static_cast<py::ssize_t>(g.dsink.size());
      dq.append(to_array(std::move(g.dq)));
      dk.append(to_array(std::move(g.dk)));
      dv.append(to_array(std::move(g.dv)));
      dsink.append(to_array(std::move(g.dsink), {sinks}));
    }
    return py::make_tuple(dq, dk, dv, dsink);
  }

  py::list moments() const {
    py::list all;
    for (const auto& noted : noted_) {
      py::list of_rank;
      for (const auto& [kind, step, moment] : noted)
        of_rank.append(py::make_tuple(ringside::name(kind), step, moment.begin_us, moment.end_us));
      all.append(of_rank);
    }
    return all;
  }

 private:
  struct Noted {
    OperationKind kind;
    int step;
    Moment moment;
  };

  void note(size_t i, const Schedule& schedule, const std::vector<Moment>& moments) {
    noted_[i].clear();
    for (size_t op = 0; op < moments.size(); ++op)
      noted_[i].push_back(
          {schedule.operations[op].kind, schedule.operations[op].step, moments[op]});
  }

  std::string name(const char* what, size_t i) const {
    return hosted_.size() == 1 ? concat(what, "_r") : concat(what, "_r[", i, "]");
  }

  void add(const Given& given, size_t i) {
    const Plan& plan = *plan_;
    const int rank = hosted_[i];
    require(0 <= rank && rank < plan.cp_size(), "rank ", rank, " is none of the plan's ",
            plan.cp_size());
    const Home of_q{rank, plan.rows(plan.home_q[rank]), "q"};
    const Home of_k{rank, plan.rows(plan.home_kv[rank]), "k"};
    const auto array = [&](const std::vector<py::object>& x, const char* what, const Home& home,
                           Shape shape = Shape::tensor) {
      return home_array(x.at(i), name(what, i), home, shape);
    };
    RankArrays x{array(given.q, "q", of_q),
                 array(given.k, "k", of_k),
                 array(given.v, "v", of_k),
                 {},
                 {},
                 {}};
    if (!given.dout.empty()) {
      x.dout = array(given.dout, "dout", of_q);
      x.out = array(given.out, "out", of_q);
      x.lse = array(given.lse, "lse", of_q, Shape::lse);
    }
    arrays_.push_back(std::move(x));
    check(i);
  }

  void check(size_t i) const {
    const Problem& p = plan_->problem;
    const RankArrays& x = arrays_[i];
    const auto shape = [&](const DoubleArray& array, const char* what, int heads, int dim,
                           const char* why) {
      require(dim >= 1, name(what, i), " has shape ", shape_of(array),
              "; expected at least one dimension");
      require_shape(array, name(what, i).c_str(), heads, dim, why);
    };
    shape(x.q, "q", p.num_heads, dim_qk(), "the plan's num_heads, one head dimension");
    shape(x.k, "k", p.num_kv_heads, dim_qk(), "the plan's num_kv_heads, q's head dimension");
    shape(x.v, "v", p.num_kv_heads, dim_v(), "the plan's num_kv_heads, one head dimension");
    if (!x.dout) return;
    shape(*x.dout, "dout", p.num_heads, dim_v(), "the shape of out");
    shape(*x.out, "out", p.num_heads, dim_v(), "q's heads and v's head dimension");
    require(x.lse->shape(0) == p.num_heads, name("lse", i), " has shape ", shape_of(*x.lse),
            "; expected ", p.num_heads, " heads, as attention_rank() returned it");
  }

  RankInputs inputs(size_t i) const {
    return {view(arrays_[i].q), view(arrays_[i].k), view(arrays_[i].v), options_};
  }

  static void take_kept(const std::vector<DoubleArray>& kept, std::vector<RankOutput>& saved) {
    require(kept.size() == saved.size(), "kept keys of ", kept.size(), " ranks; expected ",
            saved.size());
    for (size_t i = 0; i < kept.size(); ++i)
      saved[i].kept.assign(kept[i].data(), kept[i].data() + kept[i].size());
  }

  RankOutput saved_of(size_t i) const {
    require(arrays_[i].dout.has_value(), "a call without dout, out and lse has no backward pass");
    const DoubleArray& out = *arrays_[i].out;
    RankOutput saved;
    saved.out = Tensor(static_cast<int>(out.shape(0)), plan_->problem.num_heads, dim_v(), 0.0);
    std::copy(out.data(), out.data() + out.size(), saved.out.data.begin());
    saved.lse = rows_first(*arrays_[i].lse);
    return saved;
  }

  // What ends the group from another thread ends what is computed here, too.
  template <typename Run>
  void run(SocketRanks& ranks, Run run_one) const {
    require(ranks.hosted() == hosted_, "the connections are those of other ranks than the arrays");
    const auto index = [&](int rank) {
      return std::find(hosted_.begin(), hosted_.end(), rank) - hosted_.begin();
    };
    const auto ended = [&] { return ranks.aborted().has_value(); };
    try {
      without_gil_until(ended, [&] {
        ranks.run(
            [&](int rank) { run_one(static_cast<size_t>(index(rank)), ranks.of_rank(rank)); });
      });
    } catch (const Interrupted&) {
      throw Aborted(ranks.aborted().value_or("interrupted"));
    }
  }

  std::shared_ptr<const Plan> plan_;
  std::vector<int> hosted_;
  KeepKv keep_;
  std::vector<RankArrays> arrays_;
  AttentionOptions options_;
  std::vector<std::vector<Noted>> noted_;  // of each hosted rank's last pass
};

std::unique_ptr<RankCall> make_call(const std::shared_ptr<Plan>& plan,
                                    const std::vector<int>& hosted,
                                    const std::vector<std::vector<py::object>>& arrays,
                                    const OptionsArgument& options, bool keep_kv) {
  require(arrays.size() == 3 || arrays.size() == 6, "got ", arrays.size(),
          " lists of arrays; expected q, k, v, or these and dout, out, lse");
  Given given{arrays[0], arrays[1], arrays[2], {}, {}, {}};
  if (arrays.size() == 6) given.dout = arrays[3], given.out = arrays[4], given.lse = arrays[5];
  return std::make_unique<RankCall>(plan, hosted, given, options, keep_kv);
}

}  // namespace

void bind_ranks(py::module_& m) {
  py::register_exception<Aborted>(m, "Aborted", PyExc_RuntimeError).doc() =
      "What ended the ranks of this process from outside; see ringside.RankFailure.";
  py::register_exception<PeerError>(m, "PeerError", PyExc_RuntimeError).doc() =
      "A rank of another process that is gone, silent or elsewhere; see ringside.RankFailure.";
  py::class_<SocketRanks>(m, "SocketRanks", "Ranks of this process, connected to all others.")
      .def(py::init(&make_ranks), "hosted"_a, "links"_a, "timeout_s"_a,
           "links: (hosted rank, rank elsewhere, descriptor of a connected stream socket).")
      .def("start", &SocketRanks::start, "call"_a, "kind"_a,
           "Number and kind of the call whose messages come next.")
      .def("abort", &SocketRanks::abort, "why"_a, "Ends all that waits or computes, for good.")
      .def_property_readonly("aborted", &SocketRanks::aborted, "Why, or None.")
      .def_property_readonly("lost", &lost,
                             "(ranks, whether they were silent) of a PeerError, or None.")
      .def("waiting", &waiting, "(rank, step, ranks it waits for) of each hosted rank.");
  py::class_<RankCall>(m, "RankCall", "What the ranks of this process do in a call, checked.")
      .def(py::init(&make_call), "plan"_a, "hosted"_a, "arrays"_a, "options"_a, "keep_kv"_a = false)
      .def_property_readonly("moments", &RankCall::moments,
                             "Of each hosted rank, of the last pass: (operation, step, begin, end) "
                             "in microseconds.")
      .def_property_readonly("head_dim_qk", &RankCall::dim_qk, "Of q and k.")
      .def_property_readonly("head_dim_v", &RankCall::dim_v, "Of v and out.")
      .def("attention", &RankCall::attention, "ranks"_a,
           "Lists of out, lse, max_logit and what is kept, which is empty without keep_kv.")
      .def("attention_backward", &RankCall::attention_backward, "ranks"_a,
           "kept"_a = std::vector<DoubleArray>(), "Lists of dq, dk, dv, dsink.");
}

}  // namespace ringside::bindings
