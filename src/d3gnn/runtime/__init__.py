"""Runs operators batch by batch, on any host: versions, packets, outboxes, coordinator. No Spark here."""
