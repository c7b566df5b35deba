"""Retrievers: a query to ranked documents. Ties have a rule: equal scores go newest first."""
