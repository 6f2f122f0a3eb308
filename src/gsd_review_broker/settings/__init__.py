"""Every setting, declared once, its sources, and where files are."""
