"""Analysis of models: attention weights, alignments, measured and estimated costs."""
