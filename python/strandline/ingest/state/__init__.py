"""What ingests keep in the states of a channel's producers, with types. Imports clocks and channels.

Anyone may have written the log. So a state is checked where it is read, and what it has beside the known keys is kept.
"""
