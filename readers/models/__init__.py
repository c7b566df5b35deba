"""Which model: pins, fingerprints, the hub, models behind a server."""
