"""Front ends: images and audio become sequences of vectors."""
