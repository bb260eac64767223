"""Prove properties of a spec on random weights and inputs.

Contract: `prove.py` builds the model of a checked graph in float64 on the CPU and calls one
function for each property: `steps.py` compares decoding with the parallel pass, `invariance.py`
changes later positions and padding, `forms.py` compiles and unpads the model, and `gradients.py`
computes the gradients.  Each function takes a `Subject` and returns a `Property`; an exception of a
block is a failure of the property and is never raised.  `inputs.py` draws inputs and their padding,
and `comparison.py` measures differences and finds the first node that differs.  Nothing here
prints, trains or names a block.
"""
