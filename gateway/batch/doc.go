// Package batch is work that outlives connections and replicas.
package batch
