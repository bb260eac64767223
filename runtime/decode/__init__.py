"""Decoding: turn a trained model and its inputs into output sequences."""
