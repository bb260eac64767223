"""Readers: records of named fields from files of many formats."""
