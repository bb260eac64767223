"""Code generation: turn a graph into Python source and an `nn.Module`."""
