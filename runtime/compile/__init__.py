"""From graph to module: lowering, building, torch.compile."""
