"""Comparing systems by a metric: intervals, paired tests and corrections for several tests."""
