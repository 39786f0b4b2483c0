"""Pictures of layouts, masks and plans: computed, never drawn by hand.

A colour is a rank, everywhere; the later the step, the lighter; black, white and grey say the rest.
What matplotlib draws is in mask, timeline, work and layout, one kind of axes each; display is what
notebooks show of a value, without it.
"""
