"""Translation over HTTP, with the sentences of many clients in shared batches."""
