"""Every transition of a review, as pure functions: (review, command, now) -> Change, or an error.

They use no clock, no randomness and no storage. A status can change in no other way. Each Change carries its audit
events, so that no state is written without the event that explains it.
"""
