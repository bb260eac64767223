"""Beginnings: runs that fit files, copies of specs, and packages of one part."""
