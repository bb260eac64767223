"""Code generation: a graph becomes Python source and an `nn.Module`."""
