"""What proved or searched something once: `lib` keeps what came of it as data, and runs none of this."""
