"""From records to tables. ``trial``, ``ledger`` and ``statistics`` are plain Python; ``tables`` needs pandas."""
