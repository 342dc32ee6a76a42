"""What the proxy tells of its work: metric `names`, `counters`, their `collector`, `access_log`, `logs`."""
