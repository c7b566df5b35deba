"""A reader in a process of its own: its guard, its worker, the parent that talks to it."""
