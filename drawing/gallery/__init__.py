"""The gallery of pipeline schedules: one page with four sliders, the timeline they make, and what it costs."""
