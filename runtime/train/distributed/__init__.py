"""Distributed training: process groups, data and tensor parallelism, sharded checkpoints."""
