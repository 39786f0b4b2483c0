// Sequences packed end to end (THD): how many tokens each has, and in which rows they lie.
//
// cu_seqlens counts valid tokens, cu_seqlens_padded says where each sequence's rows start; both are
// global, [batch+1], and start at 0. Sequence s owns rows cu_seqlens_padded[s] up to
// cu_seqlens_padded[s+1]: its len(s) valid tokens first, padding behind. Zero-length sequences are
// legal. Checked once, at construction; nobody checks again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringside {

class PackedLayout {
 public:
  PackedLayout() : PackedLayout({0}) {}
  explicit PackedLayout(std::vector<int32_t> cu_seqlens);
  PackedLayout(std::vector<int32_t> cu_seqlens, std::vector<int32_t> cu_seqlens_padded);

  // Each sequence's rows rounded up to a multiple (Transformer Engine wants 2*cp_size).
  static PackedLayout from_lengths(const std::vector<int32_t>& lengths, int pad_to_multiple_of = 1);

  // FlashAttention 3: cu_seqlens says where rows start, seqused how many of them are valid.
  static PackedLayout from_flash(std::vector<int32_t> cu_seqlens,
                                 const std::vector<int32_t>& seqused);

  // Transformer Engine: rows behind the last offset, up to num_rows, are padding of the last
  // sequence.
  static PackedLayout from_te(std::vector<int32_t> cu_seqlens,
                              std::vector<int32_t> cu_seqlens_padded, int num_rows);

  // One position a row, restarting at 0 where a document begins. Knows no padding.
  static PackedLayout from_position_ids(const std::vector<int32_t>& position_ids);

  // One id a row: a run of one id is a document, 0 is padding of the document before.
  static PackedLayout from_segment_ids(const std::vector<int32_t>& segment_ids);

  int batch() const { return static_cast<int>(cu_seqlens_.size()) - 1; }
  int num_rows() const { return cu_seqlens_padded_.back(); }
  int num_tokens() const { return cu_seqlens_.back(); }
  int len(int s) const { return cu_seqlens_[s + 1] - cu_seqlens_[s]; }
  int padded_len(int s) const { return cu_seqlens_padded_[s + 1] - cu_seqlens_padded_[s]; }
  int row_begin(int s) const { return cu_seqlens_padded_[s]; }

  const std::vector<int32_t>& cu_seqlens() const { return cu_seqlens_; }
  const std::vector<int32_t>& cu_seqlens_padded() const { return cu_seqlens_padded_; }
  bool operator==(const PackedLayout&) const = default;

 private:
  std::vector<int32_t> cu_seqlens_, cu_seqlens_padded_;
};

}  // namespace ringside
