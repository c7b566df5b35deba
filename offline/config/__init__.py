"""The records of an experiment file, and how it is read and resolved."""
