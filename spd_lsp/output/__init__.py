"""What people see of a command or a log: nothing that controls a terminal, and no code."""
