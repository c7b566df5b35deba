"""Tables for publication: Markdown, LaTeX, CSV."""
