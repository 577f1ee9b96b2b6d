"""Schedules in other programs' formats."""
