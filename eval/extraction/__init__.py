"""Quality of an extraction, and its effect on cmc."""
