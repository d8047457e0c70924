"""Settings: what a TOML file, or ``--set key=value``, may say."""
