"""What is measured of a model: the curves of its run, its attention, and the time of its nodes."""
