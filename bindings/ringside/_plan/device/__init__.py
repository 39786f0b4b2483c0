"""A DevicePlan, whose lengths stay on the device, and its calls."""
