"""Tables to be published: Markdown, LaTeX, CSV."""
