"""Statements to assertions, by frontends that never see a question; questions to answers, by pipelines. None sees a label."""
