"""The pages of a graded class: one for the teacher, one for each student's teacher, and one to send to each student."""

from lib.suite.cli.grading.report.report import Traces, write_report

__all__ = ["Traces", "write_report"]
