// Package workspace keeps the documents of workspaces: what owners and managers
// change while the fleet runs, and every replica goes by within a second.
//
// # What is where
//
// That a workspace exists, and who has which role in it, is configuration: it
// holds without any store. What can be changed at run time is a document in
// Redis. The configuration says how a document begins; it is written when there
// is none, and from then on Redis holds.
//
//	hw:{hw-ws}:d:<id>   the document: Redis time in ms, a space, JSON
//	hw:{hw-ws}:c:<id>   the last 100 changes of it, the latest first
//	hw:{hw-ws}:head     random text, new with every change of any document
//
// All of them are in one cluster slot, and none expires. A Redis that comes back
// empty is given the documents again by the first replica that notices, as it
// knew them. Only if all replicas and Redis go at once what was changed is lost,
// unless Redis itself keeps it (appendonly yes).
//
// # Changes
//
// A change is a compare and swap: the script replaces a document only if its
// text is the one that the change was made from, and writes the audit line in the
// same step. So no change is lost, whoever else writes at the same moment. Without
// a precondition the change is made again from what is there now: the last one
// wins, field by field. With one (If-Match), it is refused. An ETag is the version
// and a digest of the stored text, so that it names one content even if Redis was
// emptied and the versions began anew.
//
// A call that fails in an unknown way may have happened. Its caller asks again
// with the ETag that it knows, and learns which.
//
// # What replicas know
//
// A request costs no call. Each replica asks for the head four times a second,
// and reads the documents, 128 a call, only when it is another one. The head is
// random and not a counter, because a counter could stand at the same number
// after a failover that lost a change. A replica that has not heard from
// Redis for two seconds does not know what holds by now, and takes the side that
// does the least harm, which is not the same for each field:
//
//	inference_queueing_enabled  true: a request waits, rather than being refused
//	published                   as last known; never known: false
//	zero_data_retention         as last known; never known: true, nothing is kept
package workspace
