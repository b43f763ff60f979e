"""Durable state: the store, the graph log, models, control commands, dead letters. No Spark here."""
