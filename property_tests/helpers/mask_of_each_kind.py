"""A mask of each kind, whose borders lie within blocks of rows and across them."""

import ringside as rs

MASKS = {
    "full": rs.Mask.full(),
    "causal": rs.Mask.causal(),
    "causal from the bottom right": rs.Mask.causal(align="bottom_right"),
    "window": rs.Mask.sliding_window(70, 9),
    "chunks": rs.Mask.chunked(96),
    "chunks and a window": rs.Mask(window_size=(40, 3), chunk_size=64, align="bottom_right"),
}
