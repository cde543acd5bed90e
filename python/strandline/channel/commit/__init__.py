"""One commit of a channel: what is planned, whether readers will accept it, and what became of it."""
