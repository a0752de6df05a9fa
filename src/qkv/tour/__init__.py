"""A first look: the worked example, and one small model of each family that learns in seconds."""
