"""Pictures of a whole class."""
