"""Front ends that turn images and audio into sequences of vectors."""
