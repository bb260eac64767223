"""Serving: translations over HTTP, many callers' sentences in one batch."""
