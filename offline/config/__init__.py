"""What an experiment file may hold: its records, how a file is read, how it is resolved."""
