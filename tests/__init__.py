"""Everything that checks the two packages; the folders mirror them."""
