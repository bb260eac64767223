"""What a run changes about the computation of its model: passes, kernels, dropout, freezing."""
