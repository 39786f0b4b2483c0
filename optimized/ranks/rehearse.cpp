// How long the messages of a plan take by themselves: what exchange="auto" compares.
#include <algorithm>
#include <utility>

#include "optimized/program/walk.h"
#include "optimized/ranks/parts.h"

namespace ringside {
namespace {

class TimedEvent {
 public:
  TimedEvent() { RINGSIDE_CUDA(cudaEventCreate(&event_)); }
  TimedEvent(const TimedEvent&) = delete;
  ~TimedEvent() { static_cast<void>(cudaEventDestroy(event_)); }

  void record(cudaStream_t stream) const { RINGSIDE_CUDA(cudaEventRecord(event_, stream)); }
  double microseconds_since(const TimedEvent& begin) const {
    float milliseconds = 0;
    RINGSIDE_CUDA(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return 1000.0 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Rows of the caller's are any: all begin at the same place.
class Rehearsal : public Walk {
 public:
  Rehearsal(const RankParts& parts, const PassParts& pass, const RankCallOptions& options,
            const DeviceMemory& rows, const RunsOn& on)
      : Walk(parts, pass, options, on), rows_(rows) {}

  void run_all(Pass pass) const {
    begin();
    run_messages();
    tell_lengths(pass);  // not compared: whose they are is no matter here
    end({});
  }

 protected:
  std::byte* caller(int, Payload, int) const override { return rows_.data(); }
  std::byte* kept(int) const override { return nullptr; }
  void compute(int, const Operation&, const OperationTables&) const override {}

 private:
  const DeviceMemory& rows_;
};

// Of the largest of the caller's arrays.
int64_t bytes_of_home(const PassParts& parts) {
  int64_t most = 0;
  for (const Schedule& schedule : parts.pass.hosted())
    for (const ScheduledBuffer& buffer : schedule.buffers)
      for (const int bytes : parts.pass.sizes().of(buffer.payload))
        if (buffer.area == kCaller) most = std::max(most, buffer.cells() * bytes);
  return most;
}

}  // namespace

void RankProgram::make_room_to_rehearse() {
  parts_->rehearsal =
      DeviceMemory(std::max(bytes_of_home(parts_->forward), bytes_of_home(parts_->backward)));
}

double RankProgram::rehearse(Links& links, int times) {
  const DeviceMemory rows = std::move(parts_->rehearsal);
  const PrivateStream stream;
  const RankCallOptions options;
  const auto both_passes = [&] {
    const RunsOn on{stream, links.workspace(), &links};
    Rehearsal(*parts_, parts_->forward, options, rows, on).run_all(Pass::forward);
    Rehearsal(*parts_, parts_->backward, options, rows, on).run_all(Pass::backward);
  };
  const TimedEvent begin, end;
  both_passes();  // what is done once
  begin.record(stream);
  for (int i = 0; i < times; ++i) both_passes();
  end.record(stream);
  stream.wait();
  return end.microseconds_since(begin) / times;
}

}  // namespace ringside
