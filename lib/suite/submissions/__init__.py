"""A student's file: finding and loading one function."""
