"""Reading a spec with mistakes of form as far as possible."""
