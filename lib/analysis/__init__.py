"""What can be worked out from a Trace."""
