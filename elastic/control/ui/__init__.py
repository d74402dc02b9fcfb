"""The page: a cluster in a browser, and its metrics for Prometheus. A client of Nimbus like the command line; it only looks."""
