"""Settings that every test shares."""

import signal

from hypothesis import settings

settings.register_profile("recap", max_examples=25, deadline=None)
settings.load_profile("recap")

# In the background of a script interrupts are ignored, and by every command too that a test starts and stops.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
