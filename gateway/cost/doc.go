// Package cost estimates how many tokens a request will use, before it is sent.
//
// # What an estimate is for
//
// Limits and the providers' quotas are taken before a request runs, and settled
// when its answer tells the real cost. An estimate that is too low lets through
// what the quota cannot pay for; one that is too high keeps work waiting. The
// output is bounded by what the request itself allows; the input has to be counted
// or guessed from its text.
//
// # Counting
//
// Where the model's vocabulary is known (see vocabularies), text is counted with
// it. Byte-pair encoding runs at 1 to 6 MB/s, so of a long prompt only windows are
// counted, spread evenly over the text, and the rest is taken to be like them. A
// window ends where a space is followed by a letter: no token of these
// vocabularies crosses such a place, so that the sum over windows is exact.
// Text that is slow to count, of many tokens in few bytes, ends the counting before
// all windows are counted (maxWork). Around each message of a chat there are a few
// tokens more.
//
// A vocabulary takes 15 to 30 ms and 4 to 7 MB once it is needed, so it is loaded
// in the background, one at a time, when its first model is asked for. Until it is
// there the model is one whose vocabulary is not known.
//
// # Learning
//
// For all other models a token is a number of bytes, begun with 4 and learned from
// the usage that answers tell. What is learned is the mean of ln(bytes/tokens),
//
//	mean += clamp(ln(bytes/tokens) − mean, ±ln 2) / min(n+1, 32)
//
// with n the reports so far: fast at first, then over the last 32 or so. One report
// moves it by a factor of 2^(1/32) at most, however absurd it is, and reports outside
// of plausible bounds by nothing. So it is near the median: a twentieth of absurd
// reports moves it by about 4 %. It is kept per model, for the maxModels that
// answered last, and in this replica only: a replica that starts learns anew.
//
// Short prompts are not learned from. What stands around the text (the roles, the
// framing of messages) would count as if it were text.
//
// # What is no text
//
// Pictures, recordings and files are estimated from what the request says of them
// (see Picture, Recording, File).
package cost
