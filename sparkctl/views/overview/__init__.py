"""The overview screen as rows: one tile per node, the fabric, findings, recent events and log lines."""
