"""Prepares Linear Road input with Spark: generated traffic, or the published files.

`generate` and `prepare` write one layout (`spark_ingest.layout`), which is all that a reader needs
to know; reading it needs no Spark.

    cli        the commands
    screen     what the commands show
    generate   generated traffic: one Spark task for each direction of an expressway
    published  the published files: checked, sorted, written
    traffic    the simulation of cars
    store      writes the folder of prepared data
    tables     tables of the layout, made of columns of numbers
    late       the last part of prepared data, as prepared data
    layout     names, schemas, order and description of prepared data
    connector  the data source by which Spark feeds a running job
    feed       rows that are released at their pace into a running job
    spark      a local Spark, its jobs, and rows on their way through it
    summary    what a command wrote
    progress   how work tells how far it is
"""
