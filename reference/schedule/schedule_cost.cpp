#include "reference/schedule/schedule_cost.h"

#include "reference/interrupt.h"

namespace ringside {

int64_t bytes_of_cell(Payload payload, Pass pass, const ElementSizes& sizes, bool travels) {
  const int64_t qk = sizes.head_dim_qk, v = sizes.head_dim_v, f32 = sizeof(float);
  switch (payload) {
    case Payload::queries:
      return pass == Pass::forward ? qk * sizes.bytes : (qk + v) * sizes.bytes + 2 * f32;
    case Payload::keys:
      return (qk + v) * sizes.bytes;
    case Payload::results:
      return v * (travels ? sizes.bytes : f32) + f32;
    case Payload::query_gradients:
      return qk * f32;
    case Payload::key_gradients:
      return (qk + v) * f32;
  }
  return 0;
}

PassCost pass_cost(const Plan& plan, Pass pass, const ElementSizes& sizes) {
  PassCost cost;
  const std::vector<int64_t> no_steps(plan.num_steps(), 0);
  for (const Schedule& s : make_schedules(plan, pass)) {
    auto& sent = cost.bytes_sent.emplace_back(no_steps);
    auto& received = cost.bytes_received.emplace_back(no_steps);
    int64_t& results_sent = cost.result_bytes_sent.emplace_back(0);
    int64_t& results_received = cost.result_bytes_received.emplace_back(0);
    for (const Operation& op : s.operations) {
      check_interrupt(4 + static_cast<int64_t>(op.sends.size() + op.receives.size()));
      const auto count = [&](const std::vector<ScheduledMessage>& messages, int64_t& of_step,
                             int64_t& of_results) {
        for (const ScheduledMessage& m : messages) {
          const Payload payload = s.buffers[m.block.buffer].payload;
          (payload == Payload::results ? of_results : of_step) +=
              m.block.cells() * bytes_of_cell(payload, pass, sizes, true);
        }
      };
      count(op.sends, sent[op.step], results_sent);
      count(op.receives, received[op.step], results_received);
    }
    int64_t& workspace = cost.workspace_bytes.emplace_back(0);
    for (const Area& area : s.areas)
      workspace += area.cells * bytes_of_cell(area.payload, pass, sizes, false);
  }
  return cost;
}

}  // namespace ringside
