"""Histories, graph, retrievers, views, packets and canonical storage: everything that needs neither model nor label."""
