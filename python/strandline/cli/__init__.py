"""The command line ``strandline``. It imports the whole core, and the connector only for ``jar``. It needs the extra ``cli``."""
