"""A walk as text, Markdown, LaTeX or JSON: the same steps, sentences and numbers."""
