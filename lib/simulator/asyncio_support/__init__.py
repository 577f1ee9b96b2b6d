"""asyncio in simulated time."""
