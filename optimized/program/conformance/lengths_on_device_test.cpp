// Programs of one rank whose lengths stay on the device: items that take turns at dq, and, where no
// document is longer than an item of keys, those that need not.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "optimized/device/processors.h"
#include "optimized/program/conformance/test_device_run.h"
#include "optimized/program/fill_length_tables.h"
#include "optimized/program/stack_parts.h"
#include "optimized/tables/heads_at_a_time.h"
#include "optimized/tables/sums/first_keys.h"

namespace ringside {
namespace {

using testing::DeviceCase;
using testing::DeviceRun;
using testing::Random;
using testing::TypeInfo;
using testing::why_not;

constexpr int kLongest = 130, kHeads = 4;

// As many documents as keep the processors busy, by what a program can tell, and more rows than one
// item may have.
PackedLayout documents(Random& random) {
  const std::vector<int> lengths{0, 1, 64, 65, 127, 128, 129, kLongest};
  const int rows = std::max(400, kLongest * 4 * processors_of_device() / kHeads);
  std::vector<int32_t> valid{0, kLongest}, padded{0, kLongest};
  while (padded.back() < rows) {
    valid.push_back(valid.back() + random.choice(lengths));
    padded.push_back(padded.back() + valid.back() - *(valid.end() - 2) + random.integer(0, 3));
  }
  return {valid, padded};
}

Capacity room_for(const Problem& problem, int max_seqlen, int ranks = 1) {
  Capacity room;
  room.cp_size = ranks;
  room.comm.name = "p2p", room.mask = problem.mask;
  room.num_heads = problem.num_heads, room.num_kv_heads = problem.num_kv_heads;
  room.max_sequences = problem.layout_q.batch() + 2, room.max_seqlen = max_seqlen;
  room.max_rows_q = problem.layout_q.num_rows(), room.max_rows_k = problem.layout_k.num_rows();
  return room;
}

TEST(LengthsOnTheDevice, OfShortDocumentsAgreeWithTheCpu) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(31);
  const Mask masks[] = {Mask::causal(), Mask::full(), Mask::sliding_window(70, 3)};
  int turn = 0;
  for (const Mask& mask : masks) {
    const TypeInfo& type = ++turn % 2 == 0 ? testing::kFloat16 : testing::kBFloat16;
    const PackedLayout layout = documents(random);
    const Problem problem{layout, layout, mask, kHeads, kHeads};
    DeviceCase device_case(random, type, problem, turn == 2 ? 64 : 128);
    device_case.capacity = room_for(problem, kLongest);
    device_case.deterministic = turn == 1;
    const DeviceRun run(device_case, type);
    SCOPED_TRACE("turn " + std::to_string(turn) + " by " + run.family());
    run.expect_forward(), run.expect_backward();
    if (device_case.deterministic) run.expect_same_backward();
  }
}

TEST(LengthsOnTheDevice, OfLongDocumentsGiveTheSameGradientsAgain) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(33);
  const std::vector<int32_t> begins{0, 400, 401, 541, 1041}, padded{0, 400, 403, 550, 1050};
  const PackedLayout layout(begins, padded), shorter({0, 300, 450, 450, 820});
  const Mask masks[] = {Mask::causal(), Mask::full(), Mask::causal(Align::bottom_right),
                        Mask::sliding_window(150, 40), Mask::chunked(200)};
  int turn = 0;
  for (const Mask& mask : masks) {
    const TypeInfo& type = ++turn % 2 == 0 ? testing::kFloat16 : testing::kBFloat16;
    const Problem problem{turn == 4 ? shorter : layout, turn == 3 ? shorter : layout, mask, 2, 1};
    DeviceCase device_case(random, type, problem, turn % 3 == 0 ? 64 : 128);
    device_case.capacity = room_for(problem, INT32_MAX);
    const DeviceRun run(device_case, type);
    SCOPED_TRACE("turn " + std::to_string(turn) + " by " + run.family());
    run.expect_forward(), run.expect_backward(), run.expect_same_backward();
  }
}

// Nothing is launched, and rows of 40 columns are no fragments.
TEST(LengthsOnTheDevice, OfNoKeysGiveZeros) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(35);
  const PackedLayout layout(std::vector<int32_t>{0, 30, 37}), none(std::vector<int32_t>{0, 0, 0});
  const Problem problem{layout, none, Mask::causal(), 2, 1};
  for (const bool deterministic : {false, true})
    for (const int dim : {8, 40, 128}) {
      DeviceCase device_case(random, testing::kBFloat16, problem, dim);
      device_case.capacity = room_for(problem, INT32_MAX);
      device_case.deterministic = deterministic;
      const DeviceRun run(device_case, testing::kBFloat16);
      SCOPED_TRACE(
          concat("head dim ", dim, deterministic ? ", deterministic" : "", " by ", run.family()));
      run.expect_forward(), run.expect_backward();
    }
}

// Of three lengths, as many of the longest as come ahead of others, and one more.
PackedLayout documents_of_some_lengths(int heads) {
  std::vector<int32_t> begins{0};
  const int longest = documents_ahead(heads, processors_of_device()) + 1;
  for (const auto& [number, length] : {std::pair{longest, 400}, {2, 200}, {3, 300}})
    for (int i = 0; i < number; ++i) begins.push_back(begins.back() + length);
  return PackedLayout(begins);
}

TEST(LengthsOnTheDevice, OfWhichFirstKeysStoreAgreeWithTheCpu) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(34);
  const int heads = processors_of_device() > 64 ? 16 : 2;
  const PackedLayout layout = documents_of_some_lengths(heads);
  const Mask masks[] = {Mask::causal(), Mask::full(), Mask::causal(Align::bottom_right)};
  int turn = 0;
  for (const Mask& mask : masks) {
    const TypeInfo& type = ++turn % 2 == 0 ? testing::kFloat16 : testing::kBFloat16;
    const Problem problem{layout, layout, mask, heads, turn == 3 ? heads / 2 : heads};
    DeviceCase device_case(random, type, problem, turn == 2 ? 64 : 128);
    device_case.capacity = room_for(problem, 400);
    device_case.deterministic = false;
    const DeviceRun run(device_case, type);
    SCOPED_TRACE("turn " + std::to_string(turn) + " by " + run.family());
    run.expect_forward(), run.expect_backward();
  }
}

void tell(const StackParts& parts, const PackedLayout& layout_q, const PackedLayout& layout_k) {
  DeviceTables tables;
  const auto of_q = tables.add(layout_q.cu_seqlens()), of_k = tables.add(layout_k.cu_seqlens());
  tables.upload();
  const auto given = [&](const PackedLayout& layout, TableOf<int32_t> lengths) {
    const DeviceOffsets offsets{tables.at(lengths), lengths.size, false};
    return DeviceLayout{offsets, offsets, layout.num_rows()};
  };
  fill_length_tables(parts.lengths, given(layout_q, of_q), given(layout_k, of_k), nullptr);
  RINGSIDE_CUDA(cudaDeviceSynchronize());
}

// Sequences, and where items begin.
std::vector<std::pair<int, int>> items_of(const StackParts& parts,
                                          WorkTable OperationTables::*list) {
  for (const OperationTables& operation : parts.backward.operations[0]) {
    const WorkTable& table = operation.*list;
    if (table.items.size == 0) continue;
    int32_t number = 0;
    RINGSIDE_CUDA(cudaMemcpy(&number, parts.tables.at(table.num_items), sizeof(number),
                             cudaMemcpyDeviceToHost));
    std::vector<WorkItem> items(number);
    RINGSIDE_CUDA(cudaMemcpy(items.data(), parts.tables.at(table.items),
                             items.size() * sizeof(WorkItem), cudaMemcpyDeviceToHost));
    std::vector<std::pair<int, int>> found;
    for (const WorkItem& item : items) found.emplace_back(item.own.seq, item.begin);
    return found;
  }
  return {};
}

TEST(LengthsOnTheDevice, MakeItemsOfKeysInTheOrderOfThoseOfTheHost) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const int heads = processors_of_device() > 64 ? 16 : 2;
  const PackedLayout layout = documents_of_some_lengths(heads);
  const Problem problem{layout, layout, Mask::causal(), heads, heads};
  const ProgramOptions options{128, 128, ElementType::bfloat16};
  const StackParts known(build_plan(problem, place(problem, "zigzag", 1), {"p2p"}), options);
  EXPECT_EQ(known.first_keys_store, known.family.backward_first_stores != nullptr);
  for (const int max_seqlen : {400, INT32_MAX}) {
    SCOPED_TRACE("max_seqlen " + std::to_string(max_seqlen));
    const StackParts told(room_for(problem, max_seqlen), options);
    tell(told, layout, layout);
    const auto items = items_of(told, &OperationTables::backward_keys);
    if (max_seqlen == 400) {
      EXPECT_EQ(told.first_keys_store, known.first_keys_store);
    }
    // Lists by document; others have items of nearly the same length in the order of their places.
    auto wanted = items_of(known, &OperationTables::backward_keys);
    if (told.first_keys_store && max_seqlen == 400) {
      EXPECT_EQ(items, wanted);
    }
    auto sorted = items;
    std::ranges::sort(sorted), std::ranges::sort(wanted);
    EXPECT_EQ(sorted, wanted);
    auto in_turn = items_of(told, &OperationTables::keys_in_turn);
    EXPECT_EQ(in_turn.size(), told.takes_turns ? items.size() : 0);
    std::map<int, int> begun;
    for (const auto& [seq, begin] : in_turn) {
      EXPECT_EQ(begin, begun[seq]) << "an item is not behind those before it";
      begun[seq] += told.family.backward_key_rows(told.shape);
    }
  }
}

// Of more slots than the threads of a block, in the order of these or against it.
TEST(LengthsOnTheDevice, MakeItemsOfManyDocumentsInTheirOrder) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr int kDocuments = 3 * LengthTables::kChunk + 7;
  std::vector<int32_t> begins{0};
  for (int seq = 0; seq < kDocuments; ++seq) begins.push_back(begins.back() + 2);
  const PackedLayout layout(begins);
  const Problem problem{layout, layout, Mask::causal(), 1, 1};
  const StackParts parts(room_for(problem, 2), {64, 64, ElementType::bfloat16});
  tell(parts, layout, layout);
  std::vector<std::pair<int, int>> keys, queries;
  for (int seq = 0; seq < kDocuments; ++seq)
    keys.emplace_back(seq, 0), queries.emplace_back(kDocuments - 1 - seq, 0);
  EXPECT_EQ(items_of(parts, &OperationTables::backward_keys), keys);
  EXPECT_EQ(items_of(parts, &OperationTables::backward_queries), queries);
}

TEST(LengthsOnTheDevice, OfShortDocumentsMakeAnItemEach) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(32);
  const PackedLayout layout = documents(random);
  const Problem problem{layout, layout, Mask::causal(), kHeads, kHeads};
  const ProgramOptions options{128, 128, ElementType::bfloat16};
  const auto parts_of = [&](int max_seqlen) {
    return StackParts(room_for(problem, max_seqlen), options);
  };
  const StackParts some = parts_of(kLongest), any = parts_of(INT32_MAX), one = parts_of(128);
  const bool knows = some.family.backward_whole_key_rows != nullptr;  // the family
  EXPECT_EQ(some.keys_in_one_item, knows);
  EXPECT_EQ(some.carries_dq, knows);
  EXPECT_EQ(one.keys_in_one_item, knows);
  EXPECT_FALSE(one.carries_dq);
  EXPECT_FALSE(any.keys_in_one_item);
  EXPECT_EQ(any.takes_turns, any.family.backward_in_turn != nullptr);
}

TEST(LengthsOnTheDevice, OfLongDocumentsTakeFewHeadsAtATime) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const ProgramOptions options{128, 128, ElementType::bfloat16};
  const PackedLayout layout(std::vector<int32_t>{0, 64});
  const Problem problem{layout, layout, Mask::causal(), 32, 32};
  const StackParts parts(build_plan(problem, place(problem, "zigzag", 1), {"p2p"}), options);
  const auto heads_of = [&](int longest, int heads, bool alone, bool in_part) {
    OperationTables list;
    list.keys_by_document = true;
    list.of_keys.most_rows_met = longest, list.of_keys.in_part = in_part;
    return parts.heads_at_a_time(list, heads, alone);
  };
  for (const auto& [longest, heads] : {std::pair{8192, 8}, {16384, 4}, {32768, 2}}) {
    const int of_all = longest < 12288 ? 4 : 2;
    for (const bool alone : {true, false}) {
      EXPECT_EQ(heads_of(longest, 32, alone, true), heads) << longest;
      EXPECT_EQ(heads_of(longest, 32, alone, false), of_all) << longest;
      EXPECT_EQ(heads_of(longest, 1, alone, true), 1) << longest;
    }
  }
  for (const int longest : {0, 2047})
    for (const bool in_part : {true, false}) {
      EXPECT_EQ(heads_of(longest, 32, true, in_part), 16) << longest;
      EXPECT_EQ(heads_of(longest, 32, false, in_part), 32) << "of a step, which is short";
      EXPECT_EQ(heads_of(longest, 8, true, in_part), 8) << longest;
    }
}

// Items that walk over the same rows at one time, of a key head that others share the sooner.
TEST(LengthsOnTheDevice, ThatAreAlikeTakeFewHeadsAtATime) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const ProgramOptions options{128, 128, ElementType::bfloat16};
  const auto parts_of = [&](const PackedLayout& keys, const Mask& mask, int num_kv_heads) {
    const PackedLayout queries(std::vector<int32_t>{0, 4096});
    const Problem problem{queries, keys, mask, 8, num_kv_heads};
    return StackParts(build_plan(problem, place(problem, "zigzag", 1), {"p2p"}), options);
  };
  const auto list_of = [](const StackParts& parts) -> const OperationTables& {
    return *std::ranges::find_if(parts.backward.operations[0], [](const OperationTables& tables) {
      return tables.backward_keys.items.size > 0;
    });
  };
  const auto heads_of = [&](const StackParts& parts, int heads, bool alone) {
    return parts.heads_at_a_time(list_of(parts), heads, alone);
  };
  const PackedLayout one(std::vector<int32_t>{0, 4096});
  const StackParts all = parts_of(one, Mask::full(), 8);
  const int few = std::min(all.family.heads_at_a_time, 8);
  EXPECT_EQ(heads_of(all, 8, true), few);
  EXPECT_EQ(heads_of(all, 8, false), few);
  const StackParts shared = parts_of(one, Mask::full(), 2);
  EXPECT_EQ(shared.head_parts, 1);
  for (const bool alone : {true, false}) EXPECT_EQ(heads_of(shared, 2, alone), 1);
  const StackParts hidden = parts_of(one, Mask::causal(), 2);
  EXPECT_EQ(hidden.head_parts, hidden.family.backward_head_parts != nullptr ? 4 : 1);
  // Others, of a launch that would end late by sections of heads, go side by side in all of them.
  for (const Mask& mask : {Mask::causal(), Mask::sliding_window(3000, 0)}) {
    const StackParts others = parts_of(one, mask, 8);
    OperationTables list = list_of(others);
    const double of_a_processor = 8.0 / processors_of_device();
    list.of_keys.longest_share = 0.11 * of_a_processor;
    EXPECT_EQ(others.heads_at_a_time(list, 8, false), 8);
    list.of_keys.longest_share = 0.09 * of_a_processor;
    EXPECT_EQ(others.heads_at_a_time(list, 8, false), few);
  }
}

// Of many sequences, in whichever chunk, and not of those before; of lengths that do not fit, as of
// none. Rows of a rank count.
TEST(LengthsOnTheDevice, TellOfHowManyHeadsItemsAreTaken) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr int kSequences = 3 * LengthTables::kChunk - 7, kRows = 2 * kSequences + 70'000;
  const auto layout_with = [](int at, int length) {
    std::vector<int32_t> begins{0};
    for (int seq = 0; seq < kSequences; ++seq)
      begins.push_back(begins.back() + (seq == at ? length : seq % 2));
    return PackedLayout(begins);
  };
  const PackedLayout full(std::vector<int32_t>{0, kRows}), few = layout_with(0, 2);
  const auto told_by = [&](const StackParts& parts, const PackedLayout& keys) {
    tell(parts, few, keys);
    int32_t heads = -1, longest = -1;
    const LengthTables& t = parts.lengths;
    RINGSIDE_CUDA(cudaMemcpy(&heads, t.most_heads, sizeof(heads), cudaMemcpyDeviceToHost));
    RINGSIDE_CUDA(cudaMemcpy(&longest, t.longest_keys, sizeof(longest), cudaMemcpyDeviceToHost));
    EXPECT_EQ(longest, 0);
    return heads;
  };
  const auto parts_of = [&](const Mask& mask, int ranks) {
    const Problem problem{full, full, mask, 2, 2};
    Capacity room = room_for(problem, 66'000, ranks);
    room.max_sequences = kSequences;
    return StackParts(room, {128, 128, ElementType::bfloat16});
  };
  const StackParts causal = parts_of(Mask::causal(), 1), all = parts_of(Mask::full(), 1);
  for (const auto& [at, length, heads, of_all] : {std::tuple{kSequences - 1, 8192, 8, 4},
                                                  {0, 20'000, 4, 2},
                                                  {5, 0, kEveryHead, kEveryHead},
                                                  {600, 32'768, 2, 2},
                                                  {7, 8191, kEveryHead, 4}}) {
    EXPECT_EQ(told_by(causal, layout_with(at, length)), heads) << at;
    EXPECT_EQ(told_by(all, layout_with(at, length)), of_all) << at;
  }
  EXPECT_EQ(told_by(causal, layout_with(3, 66'000)), 2);
  EXPECT_EQ(told_by(causal, layout_with(3, 66'001)), kEveryHead) << "longer than there is room for";
  EXPECT_EQ(told_by(causal, layout_with(3, 10'000)), 8);
  const StackParts ring = parts_of(Mask::causal(), 2);
  EXPECT_EQ(told_by(ring, layout_with(3, 4094)), kEveryHead);
  EXPECT_EQ(told_by(ring, layout_with(3, 4095)), 4);
}

}  // namespace
}  // namespace ringside
