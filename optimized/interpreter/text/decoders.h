// From a statement to the instruction that does it, by the first word of its opcode: what the
// instructions/ offer.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "optimized/interpreter/text/builder.h"

namespace ringside::ptx {

using Decoder = void (*)(Builder&, Inst&, Statement&);
using Decoders = std::map<std::string, Decoder, std::less<>>;

// Of rows of so many bytes a cell, and of the low half of 8.
Handler copy_of_width(int width);
Handler copy_low_half();

Decoders arithmetic_decoders();
Decoders bit_decoders();
Decoders conversion_decoders();
Decoders memory_decoders();
Decoders warp_decoders();
Decoders barrier_decoders();
Decoders matrix_decoders();
Decoders copy_decoders();

// Variables that are never of use at once get one row.
void allocate_rows(Builder& builder);

}  // namespace ringside::ptx
