"""Talking to the API server: credentials, one thin asynchronous client, Events, and what the nodes offer."""
