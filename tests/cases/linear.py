"""The linear layers of both operators' tables: title, shape of the rows, K, N."""

LAYERS = [
    ("one number", (1,), 1, 1),
    ("one row", (1,), 7, 5),
    ("a vector", (), 7, 5),
    ("rows of two axes", (3, 5), 9, 33),
    ("rows of three axes", (2, 3, 4), 17, 16),
    ("one column", (50,), 20, 1),
    ("one weight in a row", (50,), 1, 20),
    ("wider than a block of depth", (13,), 600, 40),
    ("more rows than a block", (500,), 31, 70),
    ("a whole number of tiles", (240,), 256, 64),
    ("a few pieces", (300,), 120, 130),
    ("no rows", (0,), 3, 4),
    ("no depth", (3,), 0, 4),
    ("no columns", (3,), 4, 0),
]
