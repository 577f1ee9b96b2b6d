"""The pages that `make browser` makes, in a headless Chromium. A package, for the scope of its fixtures."""
