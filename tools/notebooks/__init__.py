"""Building and checking the notebooks."""

import sys

# nbformat validates with jsonschema, which compiles a grammar for addresses in all alphabets when it is imported: two
# seconds, for a format that no notebook has. It does without where there is none.
sys.modules.setdefault("rfc3987_syntax", None)  # pyright: ignore[reportArgumentType]
