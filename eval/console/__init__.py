"""Printed output of commands."""
