"""Training reports: metrics, their history on disk, and plots of them."""
