"""Model definitions as data: JSON specs, their schema, their reader, and findings."""
