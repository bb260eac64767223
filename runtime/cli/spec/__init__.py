"""Commands about specs: check, show, draw, diff, swap, cost."""
