"""The commands that change a channel, or what is known of it. The command line imports them."""
