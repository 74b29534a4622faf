package redisstore

// HashSlot lets tests outside of the package play the servers of a cluster.
var HashSlot = hashSlot
