"""What the text around the cursor is to a parser: read in a process of its own, for a limited time."""
