"""What all tests share."""

from hypothesis import settings

# Machines that run the tests are shared, so that no example fails for being slow.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
