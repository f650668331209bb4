"""What n-gram tables and open files say of the next token."""
