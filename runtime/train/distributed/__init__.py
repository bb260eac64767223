"""Training by several processes: who they are, what each does, how they stay one run."""
