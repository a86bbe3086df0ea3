"""Settings that every test shares."""

from hypothesis import settings

settings.register_profile("recap", max_examples=25, deadline=None)
settings.load_profile("recap")
