"""The demo and its generated corpus."""
