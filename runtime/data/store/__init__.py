"""Prepared data that travels: named by its content, in a folder or a bucket, and cached locally."""
