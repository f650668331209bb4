"""A count spread over processes and machines."""
