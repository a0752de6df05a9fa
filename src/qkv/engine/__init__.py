"""A loaded model that answers: many texts at once, no position computed twice."""
