"""What a model is trained for: batches, their meaning, and the loss."""
