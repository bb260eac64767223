"""Commands that prepare, train and evaluate."""
