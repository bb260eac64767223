"""Commands that use a trained model: translate, generate, parse, serve."""
