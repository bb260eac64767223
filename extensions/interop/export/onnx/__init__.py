"""Export to ONNX graphs."""
