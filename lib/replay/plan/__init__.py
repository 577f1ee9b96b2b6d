"""What each rank is going to do, worked out from a Trace."""
