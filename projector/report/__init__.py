"""Answers as people and programs read them; every function takes values and returns text."""
