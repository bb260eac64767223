"""Editors of specs: a language server and a studio in the browser."""
