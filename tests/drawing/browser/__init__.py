"""What a headless Chromium shows. A package, so that a fixture of the scope "package" ends with its tests: while
playwright runs, asyncio.run of other tests would find its loop running."""
