"""How the weights of a run are updated: optimizers, groups of weights, rates and their schedule."""
