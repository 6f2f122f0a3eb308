"""The gate's rules: which commits an approval covers. Pure, and light enough for a git hook."""
