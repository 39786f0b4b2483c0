"""What C++ asks Python about arguments, and fill values that a dtype must hold."""
