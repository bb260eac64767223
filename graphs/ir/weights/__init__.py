"""What is known of weights: rules for their initial values, and how they are divided."""
