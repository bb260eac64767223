"""Commands for specs: check, show, draw, diff, swap, cost, schema, migrate."""
