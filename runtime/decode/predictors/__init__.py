"""Predictors: how a trained model answers, from raw column values to answers."""
