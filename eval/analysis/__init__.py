"""Analyses of a scored run: functions from an opened run to records. Nothing here prints."""
