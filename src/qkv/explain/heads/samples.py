"""A few sentences to judge heads by when no text is given: short, plain English, with repeats."""

SAMPLES = (
    "Once upon a time there was a little dog who lived in a big house with a red door.",
    "The man gave the book to the woman, and the woman gave the book back to the man.",
    "When it rains the streets are wet, but when the sun shines they soon are dry again.",
    "She opened the box, looked into it for a moment, and then slowly closed the box again.",
)
