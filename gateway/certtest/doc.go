// Package certtest makes certificates for tests of listeners: an authority in a folder
// that ends with the test, and what it signs, for an hour. Keys are of P-256, which
// takes well below a millisecond each.
//
// A pair is replaced the way tools do that renew certificates: each file is written
// under another name and moved over the old one, the key first. So a reader never sees
// half a file, but may see a key without its certificate.
package certtest
