"""Chats as token ids: chat templates, and how ids are stored."""
