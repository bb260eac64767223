"""Plans of batches: which rows an epoch has, and which of them form a batch."""
