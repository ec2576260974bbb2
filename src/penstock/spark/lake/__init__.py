"""Lake tables from pip alone: executors write Parquet, the driver commits the table."""
