"""`python -m spark_ingest`."""

from spark_ingest.cli import main

main()
