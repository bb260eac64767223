"""What blocks declare for drawings."""
