"""OpenTelemetry: what a log says, as spans and metrics for a collector.

A reader of the log and nothing else: live in a process that works on runs (`live`), or later from what is
stored (`export`). Written in OTLP here, without OpenTelemetry's own packages: see
docs/decisions/own-otlp.md. Imported only where a collector is named.
"""
