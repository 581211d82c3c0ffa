#!/bin/sh
# The authority of this cluster, a certificate for each of its pods, and the Secret that they are mounted from.
# pki/ca-key.pem belongs offline afterwards; `barnabas pki renew -d pki NAME` and the last command replace what runs out.
set -eu
barnabas pki init pki
#each pods
barnabas pki issue -d pki <<pod>> <<hosts>> --node <<id>> --cluster-id <<cluster_id>>
#end pods
# The operator, whom nodes know by this certificate at the brokers' own listener (INTERNAL): it makes the first users.
barnabas pki issue -d pki admin
kubectl create secret generic <<tls_secret>> --namespace <<namespace>> --from-file=pki/ca.pem \
  <<from_files>> \
  --dry-run=client -o yaml | kubectl apply -f -
#if has_console
# The console logs in by client.properties of Secret <<tls_secret>>-console (docs/deploying.md), users sign in to it.
#end has_console
