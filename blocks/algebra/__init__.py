"""Arithmetic on values: formulas and products over named axes, without modules of their own."""
