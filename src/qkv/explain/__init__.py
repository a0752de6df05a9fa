"""Looking inside: the worked example, anybody's worksheet, and why √d_k."""
