"""Modules of benches/compare/run.

command     options, and the order of things
plan        how long slices are, and what rows share
instrument  the pair of rddp-compare processes
peers       libfabric and UCX
result      items, rows, and whether they reach what they should
rows/       one file for each kind of row
report      tables for people; svg, charts, docs: charts and the pages in docs/
"""
