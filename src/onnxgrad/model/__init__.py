"""A model as something to train: what in it is a weight, in which mode it runs."""
