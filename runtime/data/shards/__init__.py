"""Prepared corpora: shards of token ids on disk and the processes that write them."""
