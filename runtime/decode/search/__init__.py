"""Search: greedy, beam and sampled decoding over next-token scores."""
