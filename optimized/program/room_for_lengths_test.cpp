// Programs whose lengths only the device knows, where there is room for nothing or for much more
// than there is. Random ones are in conformance_test.cpp.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/program/program.h"
#include "optimized/program/test_device_array.h"
#include "reference/execute/execute.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::expect_close;
using testing::has_device;
using testing::OnDevice;
using testing::Random;
using testing::TypeInfo;

// As torch hands it in: an array of no rows lies nowhere.
move::GlobalArray array_of(const OnDevice& x) {
  move::GlobalArray array = x.array();
  if (x.rows == 0) array.matrix.data = nullptr;
  return array;
}

TEST(RoomForLengths, OfNoRows) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const std::pair<int, int> rooms[] = {{0, 0}, {5, 0}, {0, 5}};
  for (const TypeInfo& type : {testing::kFloat32, testing::kBFloat16})
    for (const int dim : {8, 64, 128})
      for (const int cp_size : {1, 2})
        for (const auto& [rows_q, rows_k] : rooms) {
          SCOPED_TRACE(concat(type.name, ", dim ", dim, ", cp ", cp_size, ", rows ", rows_q,
                              " and ", rows_k));
          Capacity room;
          room.comm.name = "p2p", room.cp_size = cp_size;
          room.max_rows_q = rows_q, room.max_rows_k = rows_k;
          ProgramOptions options{dim, dim, type.type};
          options.poison = Poison::on, options.sinks = false;
          const CudaProgram program(room, options);
          DeviceTables tables;
          const auto empty = tables.add(std::vector<int32_t>{0, 0});
          tables.upload();
          const DeviceOffsets offsets{tables.at(empty), empty.size, false};
          program.set_lengths({offsets, offsets, rows_q}, {offsets, offsets, rows_k}, nullptr);
          EXPECT_TRUE(program.lengths_fitted(nullptr));

          const DeviceMemory workspace(std::max(program.forward_bytes(), program.backward_bytes()));
          const OnDevice q(rows_q, 1, dim, type.type), k(rows_k, 1, dim, type.type);
          const OnDevice out(rows_q, 1, dim, type.type);
          const OnDevice lse(rows_q, 1, 1, ElementType::float32);
          program.forward({array_of(q),
                           array_of(k),
                           array_of(k),
                           array_of(out),
                           array_of(lse),
                           nullptr,
                           {},
                           workspace.data()},
                          nullptr);
          const OnDevice dq(rows_q, 1, dim, type.type), dk(rows_k, 1, dim, type.type);
          const OnDevice dv(rows_k, 1, dim, type.type);
          program.backward({array_of(q),
                            array_of(q),
                            array_of(k),
                            array_of(k),
                            array_of(out),
                            array_of(lse),
                            array_of(dq),
                            array_of(dk),
                            array_of(dv),
                            nullptr,
                            nullptr,
                            {},
                            true,
                            workspace.data()},
                           nullptr);
          RINGSIDE_CUDA(cudaDeviceSynchronize());
          for (const OnDevice* x : {&out, &dq, &dk, &dv})
            for (const double value : x->read().data) EXPECT_EQ(value, 0);
          for (const double value : lse.read().data) EXPECT_EQ(value, -INFINITY);
        }
}

// More items than blocks of threads, of documents that mostly fill a little of one, in arrays with
// more rows than they have; rows behind them are NaN and of nobody.
void expect_that_all_items_run(Random& random, int batch, const std::vector<int>& lengths,
                               const TypeInfo& type, int dim, bool deterministic,
                               std::string_view family, int cp_size) {
  constexpr int kRoom = 300;
  Problem problem;
  std::array<std::vector<int32_t>, 2> offsets{{{0}, {0}}};
  for (auto& of_side : offsets)
    for (int s = 0; s < batch; ++s) of_side.push_back(of_side.back() + random.choice(lengths));
  problem.layout_q = {offsets[0], offsets[0]}, problem.layout_k = {offsets[1], offsets[1]};
  problem.num_heads = problem.num_kv_heads = 2;
  testing::RandomCase c(random, problem);
  c.options = {};
  c.q = random_tensor(random, problem.layout_q, 2, dim);
  c.k = random_tensor(random, problem.layout_k, 2, dim);
  c.v = random_tensor(random, problem.layout_k, 2, dim);
  c.dout = random_tensor(random, problem.layout_q, 2, dim);
  for (Tensor* x : {&c.q, &c.k, &c.v, &c.dout})
    for (double& value : x->data) value = testing::rounded(value, type.type);

  const auto with_room = [&](Tensor x) {
    x.data.resize(x.data.size() + int64_t{kRoom} * x.heads * x.dim, NAN), x.rows += kRoom;
    return OnDevice(x, type.type);
  };
  const OnDevice q = with_room(c.q), k = with_room(c.k), v = with_room(c.v);
  const OnDevice dout = with_room(c.dout);
  Capacity room;
  room.comm.name = "p2p", room.max_sequences = batch;
  room.max_rows_q = q.rows, room.max_rows_k = k.rows;
  room.num_heads = room.num_kv_heads = 2, room.cp_size = cp_size;
  ProgramOptions options{dim, dim, type.type};
  options.softmax_scale = static_cast<float>(c.options.softmax_scale);
  options.poison = deterministic ? Poison::on : Poison::off;
  options.sinks = false, options.family = std::string(family);
  const CudaProgram program(room, options);
  DeviceTables tables;
  const auto of_q = tables.add(offsets[0]), of_k = tables.add(offsets[1]);
  tables.upload();
  const DeviceOffsets in_q{tables.at(of_q), of_q.size, false};
  const DeviceOffsets in_k{tables.at(of_k), of_k.size, false};
  program.set_lengths({in_q, in_q, q.rows}, {in_k, in_k, k.rows}, nullptr);
  EXPECT_TRUE(program.lengths_fitted(nullptr));

  const DeviceMemory workspace(std::max(program.forward_bytes(), program.backward_bytes()));
  const OnDevice out(q.rows, 2, dim, type.type), dq(q.rows, 2, dim, type.type);
  const OnDevice dk(k.rows, 2, dim, type.type), dv(k.rows, 2, dim, type.type);
  const OnDevice lse(q.rows, 2, 1, ElementType::float32);
  const OnDevice before(q.rows, 2, dim, type.type);
  for (const OnDevice* results : {&before, &out})  // the second in what the first one left
    program.forward({q.array(),
                     k.array(),
                     v.array(),
                     results->array(),
                     lse.array(),
                     nullptr,
                     {},
                     workspace.data()},
                    nullptr);
  RINGSIDE_CUDA(cudaDeviceSynchronize());
  program.backward({dout.array(),
                    q.array(),
                    k.array(),
                    v.array(),
                    out.array(),
                    lse.array(),
                    dq.array(),
                    dk.array(),
                    dv.array(),
                    nullptr,
                    nullptr,
                    {},
                    deterministic,
                    workspace.data()},
                   nullptr);
  RINGSIDE_CUDA(cudaDeviceSynchronize());
  const Plan plan = build_plan(problem, place(problem, "zigzag", cp_size), {"p2p"});
  const AttentionOutput want = attention(plan, c.inputs());
  const auto without_room = [&](const OnDevice& x) {
    Tensor read = x.read();
    read.rows = c.q.rows, read.data.resize(size_t(c.q.rows) * read.heads * read.dim);
    return read;
  };
  const AttentionGradients gradients =  // from what forward returned
      attention_backward(plan, c.inputs(), c.dout, {without_room(out), without_room(lse), {}});
  const auto compare = [&](const char* what, const std::vector<double>& expected,
                           const OnDevice& x) {
    std::vector<double> got = x.read().data;
    for (size_t i = expected.size(); i < got.size(); ++i) ASSERT_EQ(got[i], 0) << what;
    got.resize(expected.size());
    expect_close(what, type, expected, got);
  };
  compare("out", want.out.data, out);
  compare("dq", gradients.dq.data, dq);
  compare("dk", gradients.dk.data, dk);
  compare("dv", gradients.dv.data, dv);
}

TEST(RoomForLengths, OfMoreItemsThanRunAtOnce) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  // The interpreter runs a few blocks of threads at once, a GPU a few hundred.
  const bool few = std::getenv("RINGSIDE_FEW_CASES") != nullptr;
  Random random(7);
  const auto check = [&](const TypeInfo& type, int dim, bool deterministic,
                         std::string_view family = {}, int cp_size = 1) {
    random.begin_case();
    SCOPED_TRACE(concat(type.name, ", dim ", dim, ", cp ", cp_size,
                        deterministic ? ", deterministic " : " ", family));
    const bool is_first = family.empty();  // others launch up to 16 blocks a processor
    const std::vector<int> lengths = is_first
                                         ? std::vector<int>{0, 1, 1, 1, 2, 2, 2, 63, 64, 65, 200}
                                         : std::vector<int>{0, 1, 1, 1, 2, 2, 2, 65};
    const int batch = few ? 40 : is_first ? 150 : 1400;
    expect_that_all_items_run(random, batch, lengths, type, dim, deterministic, family, cp_size);
  };
  for (const bool deterministic : {false, true}) {
    for (const int dim : {64, 128}) check(testing::kFloat16, dim, deterministic);
    if (few && deterministic) break;
    check(testing::kFloat16, 128, deterministic, "", 2);  // each step goes on from the one before
    check(testing::kBFloat16, 64, deterministic, "mma");
    check(testing::kFloat32, 16, deterministic, "float32");
  }
}

}  // namespace
}  // namespace ringside
