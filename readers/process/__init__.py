"""A reader in its own process: guard, worker, and the parent's end."""
