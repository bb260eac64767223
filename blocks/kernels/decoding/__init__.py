"""Decoding: prepacked matrices and compiled steps, which generated code names."""
