"""Low-precision copies of weights, which generated code names."""
