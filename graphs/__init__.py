"""What a spec means: expansion, wiring, types, drawing."""
