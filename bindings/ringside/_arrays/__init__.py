"""Arrays of other libraries: borrowed, made, and handed to kernels."""
