"""What a rank can hold, and what can be done to it."""
