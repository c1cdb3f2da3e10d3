"""Machines whose operations are really executed, by worker processes: emulated (device time) and native (wall clock)."""
