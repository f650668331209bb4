"""The one error a person can cause and mend. Its text says what was expected, what was found, what to do next."""


class UserError(Exception):
    """Shown as one clear sentence: by the commands with exit status 1, by the server as a message."""
