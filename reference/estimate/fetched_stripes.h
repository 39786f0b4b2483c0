// What a rank fetches of stripes and what it computes with it: neither tile by tile nor row by row.
//
// Which rows of a stripe a rank sees is the same for all stripes between two places where an end of
// what it sees may lie (places_of_ends()), so a few ranges of owners say it of a document. What
// remains to be done for each owner is to add up its rows and to see which are fetched with what is
// around: an operation or two that run over all owners side by side.
#pragma once

#include "reference/estimate/fetched.h"
#include "reference/estimate/home_stripes.h"

namespace ringside {

// Of a plan whose homes are stripes. Ranks may be asked for on several threads at a time.
Fetched fetched_of_stripes(int rank, const Plan& plan, const HomeStripes& stripes, int num_stages,
                           StackOrder order, const BlockSize& block_size);

}  // namespace ringside
