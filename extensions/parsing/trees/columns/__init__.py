"""Trees as arrays and tensors, for columns of tables."""
