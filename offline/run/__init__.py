"""A run on disk: its folder, its manifests, its steps."""
