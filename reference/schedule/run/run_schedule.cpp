#include "reference/schedule/run/run_schedule.h"

#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#include "reference/attention/partial.h"
#include "reference/execute/execute_items.h"

namespace ringside {
namespace {

std::span<const std::byte> bytes(const std::vector<double>& x) {
  return std::as_bytes(std::span(x));
}

void exchange(RankRun& run, const Operation& op, Communicator& communicator) {
  std::vector<std::vector<double>> sent, received;
  for (const ScheduledMessage& m : op.sends) sent.push_back(run.packed(m.block));
  for (const ScheduledMessage& m : op.receives) received.push_back(run.packed(m.block));
  communicator.begin(op.step);
  for (size_t i = 0; i < sent.size(); ++i) communicator.send(op.sends[i].peer, bytes(sent[i]));
  for (size_t i = 0; i < received.size(); ++i)
    communicator.receive(op.receives[i].peer, std::as_writable_bytes(std::span(received[i])));
  communicator.end();
  for (size_t i = 0; i < received.size(); ++i) run.unpack(op.receives[i].block, received[i]);
}

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

template <typename Part>
void or_abort(Communicator& communicator, Part part) {
  try {
    part();
  } catch (const std::exception& error) {
    communicator.abort(error.what());
    throw;
  }
}

std::vector<Moment> walk(const Schedule& schedule, RankRun& run, Communicator& communicator) {
  std::vector<Moment> moments;
  or_abort(communicator, [&] {
    for (const Operation& op : schedule.operations) {
      const double begin = now_us();
      if (op.kind == OperationKind::exchange)
        exchange(run, op, communicator);
      else
        run.run(op);
      moments.push_back({begin, now_us()});
    }
  });
  return moments;
}

void merge_sinks(const Plan& plan, int rank, const std::vector<double>& sinks, RankOutput& home) {
  const std::vector<double> no_value(home.out.dim, 0.0);
  execution::for_each_home_row(plan, rank, [&](int row, Interval) {
    for (size_t h = 0; h < sinks.size(); ++h) {
      const int head = static_cast<int>(h);
      merge_cell(home.out.at(row, head), home.lse.at(row, head), home.out.dim, no_value.data(),
                 sinks[h]);
    }
  });
}

// dout . out of every row that is not padding, which is never read.
Tensor delta_of(const Plan& plan, int rank, const TensorView& dout, const Tensor& out) {
  Tensor delta(dout.rows, dout.heads, 1, 0.0);
  execution::for_each_home_row(plan, rank, [&](int row, Interval) {
    for (int head = 0; head < dout.heads; ++head) {
      double sum = 0;
      for (int d = 0; d < dout.dim; ++d) sum += dout.at(row, head)[d] * out.at(row, head)[d];
      *delta.at(row, head) = sum;
    }
  });
  return delta;
}

}  // namespace

RankOutput attention_of_rank(const Plan& plan, const Schedule& forward, const RankInputs& inputs,
                             Communicator& communicator) {
  RankRun run(plan, forward, inputs.options, {inputs.q}, {inputs.k, inputs.v});
  auto moments = walk(forward, run, communicator);
  auto results = run.arrays(forward.home_query_sums);
  RankOutput home{std::move(results[0]), std::move(results[1]), run.max_logit(), std::move(moments),
                  run.kept()};
  merge_sinks(plan, forward.rank, inputs.options.sinks, home);
  return home;
}

RankGradients attention_backward_of_rank(const Plan& plan, const Schedule& backward,
                                         const RankInputs& inputs, const TensorView& dout,
                                         const RankOutput& saved, Communicator& communicator) {
  const Tensor delta = delta_of(plan, backward.rank, dout, saved.out);
  RankRun run(plan, backward, inputs.options, {inputs.q, dout, saved.lse, delta},
              {inputs.k, inputs.v});
  or_abort(communicator, [&] { run.set_kept(saved.kept); });
  auto moments = walk(backward, run, communicator);
  auto keys = run.arrays(backward.home_key_sums);
  RankGradients gradients{std::move(run.arrays(backward.home_query_sums)[0]), std::move(keys[0]),
                          std::move(keys[1]), std::vector<double>(inputs.options.sinks.size(), 0.0),
                          std::move(moments)};
  execution::add_sink_gradients(plan, backward.rank, inputs.options.sinks, saved.lse, delta,
                                gradients.dsink);
  return gradients;
}

}  // namespace ringside
