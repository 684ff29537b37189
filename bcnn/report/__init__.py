"""From measurements to tables, files and plots."""
