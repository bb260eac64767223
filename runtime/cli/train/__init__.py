"""Commands that prepare data, train models and evaluate them."""
