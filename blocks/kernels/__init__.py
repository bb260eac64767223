"""Kernels: functions that the modules of several blocks share; no block of its own."""
