"""The one error that a user can cause and fix. Its text gives the cause and the remedy."""


class UserError(Exception):
    """Shown as one sentence: by the commands with exit status 1, by the server as a message."""
