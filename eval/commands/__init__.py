"""The command line: one function per command. Heavy modules are imported inside them, so that `--help` is quick."""
