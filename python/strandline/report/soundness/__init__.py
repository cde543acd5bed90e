"""Whether a channel is sound: its log and files against the protocol. It imports everything below ``strandline.report``."""
