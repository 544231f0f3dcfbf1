"""What a job did, and how it stands.

replays the command that replays the error with which a job ended
report  totals per operator, samples, the report of a finished job
late    what is said of records that were late
left_out  what is said of all records and rows that were left out
status  a job at one moment
story   what happened to a job, in order, as words
views   a job as the page shows it
metrics names, labels and values for Prometheus
traces  what a job has decided, for OpenTelemetry
"""
