"""Variants of the blocks of arithmetic."""

from __future__ import annotations

FREE = {"elementwise"}
