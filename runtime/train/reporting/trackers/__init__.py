"""Trackers: TensorBoard, Trackio, Weights & Biases and MLflow."""
