"""The command line: one function a command. Heavy modules are imported inside them, so that `--help` is quick."""
