"""The one error a person can cause and mend. Its text: what was expected, what was found, what to do."""


class UserError(Exception):
    """Shown as one clear sentence: by the commands with exit status 1, by the server as a message."""
