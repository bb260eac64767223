"""What a model is, as data: the JSON specs, their form, their reader, findings."""
