"""Files of other systems that run, scrape and draw a cluster: Kubernetes, systemd, compose, Prometheus, Grafana.

May touch:  nothing: name -> text, of arguments.      Must not touch: files, network, the cluster.
Invariants: what is generated is what stands in deploy/ of the repository (a test compares); keys in it are those that a node knows.
Read next:  ../commands/generate.py.
"""
