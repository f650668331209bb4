"""The commands, a file each: the only place that wires the parts together."""
