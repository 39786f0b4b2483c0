"""One-line faults in the peers' primitives, conventions and options; see mutants_list.py."""

from mutants_list import Mutant

THD = "reference/thd/"
PIECES = "reference/partition/pieces.h"
LENGTHS = "optimized/tables/length_tables.h"
MICRO = "bindings/ringside/micro_sequences.py"

MUTANTS_OF_PRIMITIVES = [
    # --- dual chunks
    Mutant(
        "the owner of a mirror chunk is one off",
        PIECES,
        "chunk < cp_size ? chunk : chunks - 1 - chunk",
        "chunk < cp_size ? chunk : chunks - 2 - chunk",
    ),
    Mutant(
        "chunks are lengths floor-divided by 2*cp",
        PIECES,
        "const int floor = cut(length, chunks, i);",
        "const int floor = length / chunks * i;",
        "TransformerEngine #1930: 7 tokens on 2 ranks, one is dropped",
    ),
    Mutant(
        "the second half of a rank's rows begins at its first row",
        THD + "dual_chunk.h",
        "{second, {}, row + first.size()}",
        "{second, {}, row}",
    ),
    Mutant(
        "a mirror chunk ends a row early where chunks do not divide",
        PIECES,
        "divides ? floor : floor + 1",
        "divides ? floor : floor",
    ),
    Mutant(
        "the second chunk's rows are not counted",
        THD + "dual_chunk.h",
        "return inside(first, position) + inside(second, position);",
        "return inside(first, position);",
    ),
    # --- step metadata
    Mutant(
        "the left window of a step is one key wide of it",
        THD + "step_entry.h",
        "kv_len - 1 - lo_moves",
        "kv_len - lo_moves",
    ),
    Mutant(
        "the right window of a step is one key wide of it",
        THD + "step_entry.h",
        "q_len - 1 - hi_moves",
        "q_len - hi_moves",
    ),
    Mutant(
        "entries join although one window cannot say both",
        THD + "step_entry.h",
        "if (lo_must_move && lo_step + lo_inner != next.len) return false;",
        "(void)lo_must_move;",
    ),
    Mutant(
        "one window serves all sequences",
        THD + "step_metadata.cpp",
        "step.window_left.push_back(entry.window_left());",
        "step.window_left.push_back(step.window_left.empty() ? entry.window_left()"
        " : step.window_left.front());",
        "TransformerEngine #2829: the window is a scalar, from max_seqlen",
    ),
    Mutant(
        "padding keys count as visible in a step",
        THD + "step_metadata.cpp",
        "{layouts.mask, layouts.q.len(s), layouts.k.len(s), r.q, r.kv}",
        "{layouts.mask, layouts.q.len(s), layouts.k.padded_len(s), r.q, r.kv}",
        "TransformerEngine #3331: tail padding attended to",
    ),
    Mutant(
        "the ring's metadata turns the other way",
        THD + "step_metadata.cpp",
        "(cp.rank - step + cp.cp_size) % cp.cp_size",
        "(cp.rank + step) % cp.cp_size",
    ),
    Mutant(
        "an upper step takes the first half of the queries",
        THD + "step_metadata.cpp",
        "upper ? queries.second_half() : queries",
        "upper ? queries.first_half() : queries",
    ),
    Mutant(
        "lower and upper are exchanged",
        THD + "step_metadata.cpp",
        'kv_rank < cp.rank ? "lower" : "upper"',
        'kv_rank < cp.rank ? "upper" : "lower"',
    ),
    # --- chunks
    Mutant(
        "the chunk grid starts where a rank's rows start",
        THD + "chunk_pieces.h",
        "rows.rows_below((chunk + 1) * chunk_size)",
        "rows.rows_below((chunk + 1) * chunk_size + rows.first.begin % chunk_size)",
        "TransformerEngine #1887: interior chunks of a half merge",
    ),
    Mutant(
        "below the diagonal the first key's chunk is taken",
        THD + "chunk_pieces.h",
        "last_key / chunk_size, chunk_size, len",
        "kv.first.begin / chunk_size, chunk_size, last_key < 0 ? 0 : len",
    ),
    Mutant(
        "above the diagonal the last query's chunk is taken",
        THD + "chunk_pieces.h",
        "queries.first.begin / chunk_size, chunk_size, len",
        "(queries.first.end > 0 ? queries.first.end - 1 : 0) / chunk_size, chunk_size, len",
    ),
    Mutant(
        "a shared chunk runs into padding",
        THD + "chunk_pieces.h",
        "begin + chunk_size < len ? begin + chunk_size : int64_t{len}",
        "begin + chunk_size < len ? begin + chunk_size : begin + chunk_size",
    ),
    # --- what a device does for one sequence, or one row
    Mutant(
        "the last query that sees a key is left out of the only entry",
        "reference/rows/mask.h",
        "q + left + 1 < hi) hi = q + left + 1;",
        "q + left < hi) hi = q + left;",
    ),
    Mutant(
        "the second chunk of a rank lies on its first",
        "optimized/tables/thd/dual_chunks.h",
        "rows.first.size() + (position - rows.second.begin)",
        "position - rows.second.begin",
    ),
    Mutant(
        "a thread walks past the end of a row",
        "optimized/tables/thd/row_tiles.h",
        "if (unit < array.units_of_row) return;",
        "if (unit <= array.units_of_row) return;",
    ),
    Mutant(
        "a block of queries of a one-token document is taken for none",
        "optimized/tables/work_list.h",
        "(item.len_q > 0)",
        "(item.len_q > 1)",
    ),
    Mutant(
        "sequences behind the first 512 begin at row 0",
        LENGTHS,
        "for (int chunk = 0; chunk < seq / kChunk; ++chunk)",
        "for (int chunk = 0; chunk < 0; ++chunk)",
    ),
    Mutant(
        "a row's search stops short of the last segments",
        LENGTHS,
        "while (step <= segments / 2) step *= 2;",
        "while (step <= segments / 4) step *= 2;",
    ),
    Mutant(
        "an item of lengths on the device begins a block late",
        LENGTHS,
        "place - (item.own.row / rows + j);",
        "place + 1 - (item.own.row / rows + j);",
    ),
    # --- rows
    Mutant(
        "the valid copy is a row short",
        THD + "reorder.cpp",
        "append(copies, {cu_seqlens_padded[s], cu_seqlens_padded[s], tokens});",
        "append(copies, {cu_seqlens_padded[s], cu_seqlens_padded[s], tokens - 1});",
    ),
    Mutant(
        "the valid copy takes padding along",
        THD + "reorder.cpp",
        "append(copies, {cu_seqlens_padded[s], cu_seqlens_padded[s], tokens});",
        "append(copies, {cu_seqlens_padded[s], cu_seqlens_padded[s], rows});",
    ),
    Mutant(
        "every block of a long run is copied from its start",
        THD + "copy_rows.cpp",
        "(copies[i].from + skip) * buffers.row_bytes",
        "copies[i].from * buffers.row_bytes",
    ),
    # --- micro-sequences
    Mutant(
        "first_document_begin is ignored",
        THD + "micro_sequence.cpp",
        "micro.first_document_begin = document;",
        "micro.first_document_begin = from;",
        "Fast-LLM #514: a straddling document loses its past",
    ),
    Mutant(
        "cu_seqlens_k does not start over",
        THD + "micro_sequence.cpp",
        "micro.cu_seqlens_k.push_back(to - micro.first_document_begin);",
        "micro.cu_seqlens_k.push_back(to);",
        "Fast-LLM #514: non-canonical offsets corrupt dK and dV",
    ),
    Mutant(
        "a later piece's gradient overwrites",
        MICRO,
        "self.dk[seen] += dk",
        "self.dk[seen] = dk",
    ),
    Mutant(
        "a straddling document is aligned top-left",
        MICRO,
        'chunk_size=mask.chunk_size, align="bottom_right")',
        'chunk_size=mask.chunk_size, align="top_left")',
        "Fast-LLM #512: causal alignment of a straddling document",
    ),
    Mutant(
        "gradients of the last sequence stay in the buffer",
        MICRO,
        "if i == 0:  # a new sequence",
        "if i < 0:  # a new sequence",
    ),
    # --- conventions and options
    Mutant(
        "FlashAttention's masks are aligned top-left",
        "bindings/ringside/flash.py",
        'align="bottom_right"',
        'align="top_left"',
        "flash-attention #436: causal alignment where lengths differ",
    ),
    Mutant(
        "sbhd is read as bshd",
        "bindings/ringside/_attention/formats.py",
        'if qkv_format == "sbhd":\n        x = x.swapaxes(0, 1)',
        'if qkv_format == "sbhd":\n        x = x + 0',
    ),
    Mutant(
        "tail rows are left out of Transformer Engine's layout",
        "reference/rows/packed_layout.cpp",
        "layout.cu_seqlens_padded_.back() = num_rows;",
        "layout.cu_seqlens_padded_.back() = layout.num_rows();",
        "TransformerEngine #3331: tail padding",
    ),
    Mutant(
        "padding between documents is a document",
        "reference/rows/packed_layout.cpp",
        "if (id != 0 && id != before) {",
        "if (id != before) {",
    ),
    Mutant(
        "dropout is the same for all heads",
        "reference/attention/philox.h",
        "static_cast<uint32_t>(head)",
        "static_cast<uint32_t>(head * 0)",
    ),
    Mutant(
        "dropout forgets to scale what stays",
        "reference/attention/score_model.h",
        "? weight / static_cast<Real>(1 - options.dropout.p)",
        "? weight",
    ),
    Mutant(
        "max_logit is that of the last sequence",
        "reference/attention/oracle.cpp",
        "max_logit = larger(max_logit, score);",
        "max_logit = larger(masked(0), score);",
    ),
    Mutant(
        "the gradient of a sink has the wrong sign",
        "reference/attention/oracle.cpp",
        "g.dsink[head.head] -=",
        "g.dsink[head.head] +=",
    ),
    Mutant(
        "the definition rounds the number of large scores away",
        "reference/attention/oracle.cpp",
        "return {top, std::log(sum + std::exp(sink - top))};",
        "return {top + std::log(sum + std::exp(sink - top))};",
    ),
]
